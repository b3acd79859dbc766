//! The macro behind the table of options.

/// Makes structs of options from a table. For each row it makes:
///
/// * a field;
/// * the method that sets it, whose docs begin with `help`, and end with `range`, default and `changes`;
/// * an [`OptionInfo`](crate::OptionInfo), which reads, checks and prints the value as text.
///
/// `name: T = value` has a default. `name: T, or "words"` is an `Option<T>`: `None` until it is set, and the words
/// describe the default, which depends on the database or on other options. `as` names another type of the method's
/// argument. A row without `range` is a choice: its names are the range. `with` adds fields that are no rows.
macro_rules! declare_options {
    ($(
        $(#[$about:meta])*
        $options:ident with { $($more:ident: $more_type:ty = $more_value:expr,)* }
        {$(
            $(#[doc = $doc:literal])*
            $name:ident: $type:ty $(as $taken:ty)? $(= $default:expr)? $(, or $words:literal)?;
            $form:ident, $(range: $range:literal,)? changes: $changes:ident, $(models: $models:literal,)?
            help: $help:literal;
        )*}
    )*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Debug)]
            #[must_use]
            pub struct $options {
                $(pub(crate) $name: declare_options!(@field $type $(, $words)?),)*
                $(pub(crate) $more: $more_type,)*
            }

            impl Default for $options {
                fn default() -> Self {
                    Self::new()
                }
            }

            impl $options {
                /// The defaults.
                pub fn new() -> Self {
                    $options {
                        $($name: declare_options!(@default $($default)? $(, $words)?),)*
                        $($more: $more_value,)*
                    }
                }

                $(
                    #[doc = concat!($help, ".")]
                    #[doc = ""]
                    $(#[doc = $doc])*
                    #[doc = ""]
                    $(#[doc = concat!("Range: ", $range, ".")])?
                    $(#[doc = concat!("Default: `", stringify!($default), "`.")])?
                    $(#[doc = concat!("Default: ", $words, ".")])?
                    #[doc = concat!("Changes: ", stringify!($changes), ".")]
                    $(#[doc = concat!("Models: `", $models, "`.")])?
                    pub fn $name(mut self, value: declare_options!(@taken $type $(, $taken)?)) -> Self {
                        self.set_by_caller(stringify!($name));
                        let value: $type = value.into();
                        self.$name = value.into();
                        self
                    }
                )*
            }
        )*

        const NAMES: &[&str] = &["profile", $($(stringify!($name),)*)*];

        impl OptionInfo {
            /// All options but [`Options::create`], which depends on the task of the caller.
            pub const ALL: [OptionInfo; NAMES.len()] = [
                // First, so that options given beside it override its values.
                PROFILE,
                $($(OptionInfo {
                    name: stringify!($name),
                    help: $help,
                    value: $form.0,
                    unit: $form.1,
                    range: declare_options!(@range $type $(, $range)?),
                    changes: stringify!($changes),
                    models: declare_options!(@text $($models)?),
                    depends: declare_options!(@text $($words)?),
                    get: |options| {
                        let part = <$options as Part>::of(options);
                        declare_options!(@value part.$name $(, $words)?).map(Value::text)
                    },
                    set: |options, text| {
                        let value = <$type as Value>::parse(text, declare_options!(@range $type $(, $range)?))?;
                        Ok(<$options as Part>::change(options, |part| part.$name(value)))
                    },
                    is_in_range: |options| {
                        let part = <$options as Part>::of(options);
                        let value = declare_options!(@value part.$name $(, $words)?);
                        value.is_none_or(|value| value.is_in(declare_options!(@range $type $(, $range)?)))
                    },
                },)*)*
            ];
        }
    };

    (@field $type:ty) => { $type };
    (@field $type:ty, $words:literal) => { Option<$type> };
    (@default $default:expr) => { $default };
    (@default , $words:literal) => { None };
    (@taken $type:ty) => { $type };
    (@taken $type:ty, $taken:ty) => { $taken };
    (@range $type:ty) => { <$type as Value>::NAMES };
    (@range $type:ty, $range:literal) => { $range };
    (@text) => { None };
    (@text $text:literal) => { Some($text) };
    (@value $field:expr) => { Some(&$field) };
    (@value $field:expr, $words:literal) => { $field.as_ref() };
}
