//! The machine of a run: kernel, CPUs, the file system and device under a directory. Facts that the system does not
//! report are left out.

use std::fs;
use std::path::Path;

use millpond::metrics::Cpus;
use rustix::fs::{Dev, major, minor, stat};
use serde::Serialize;

/// The machine's visible facts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// System, release and architecture.
    pub(crate) kernel: String,
    /// CPUs that the process can keep busy.
    pub(crate) cpus: f64,
    /// The file system's type, such as `ext4`.
    pub(crate) file_system: Option<String>,
    /// The mounted device, such as `/dev/vda1`.
    pub(crate) device: Option<String>,
    /// `rotating` or `not rotating`, as the kernel reports it; a virtual disk may report either.
    pub(crate) device_kind: Option<&'static str>,
}

impl Machine {
    /// Reads the facts of the machine, and of the device under `dir`.
    pub(crate) fn under(dir: &Path) -> Machine {
        let system = rustix::system::uname();
        let name = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let device = stat(dir).ok().map(|found| found.st_dev);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mount = device.and_then(|device| mount_of(&mounts, device));
        Machine {
            kernel: format!("{} {} {}", name(system.sysname()), name(system.release()), name(system.machine())),
            cpus: Cpus::read().effective(),
            file_system: mount.as_ref().map(|(file_system, _)| file_system.clone()),
            device: mount.map(|(_, device)| device),
            device_kind: device.and_then(kind_of),
        }
    }
}

/// Type and source of the file system on `device`.
fn mount_of(mounts: &str, device: Dev) -> Option<(String, String)> {
    let number = format!("{}:{}", major(device), minor(device));
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&number))?;
    // The number of fields before the dash varies.
    let mut fields = line.split_once(" - ")?.1.split(' ');
    Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
}

/// Whether the disk reports that it rotates.
fn kind_of(device: Dev) -> Option<&'static str> {
    let place = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    // A partition has no queue of its own: its disk is the folder above.
    let read = |path: &str| fs::read_to_string(format!("{place}/{path}")).ok();
    let rotates = read("queue/rotational").or_else(|| read("../queue/rotational"))?;
    Some(if rotates.trim() == "1" { "rotating" } else { "not rotating" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_is_found_by_its_devices_number() {
        let mounts = "22 1 254:1 / / rw,relatime shared:1 master:2 - ext4 /dev/vda1 rw\n\
                      23 22 0:20 / /proc rw - proc proc rw\n";
        let found = mount_of(mounts, rustix::fs::makedev(254, 1));
        assert_eq!(found, Some(("ext4".to_owned(), "/dev/vda1".to_owned())));
        assert_eq!(mount_of(mounts, rustix::fs::makedev(254, 2)), None);
    }

    #[test]
    fn any_machine_has_a_kernel_and_cpus() {
        let machine = Machine::under(Path::new("."));
        assert!(machine.kernel.starts_with("Linux "), "{}", machine.kernel);
        assert!(machine.cpus > 0.0);
    }
}
