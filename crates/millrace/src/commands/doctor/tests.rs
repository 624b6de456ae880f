//! Findings of machines that are folders.

use super::compute::{Machine, Memory};
use super::{Finding, Verdict, compute, serving};
use crate::config::Settings;
use std::net::TcpListener;
use testing::folder::Folder;

/// Paths and texts.
type Files<'a> = &'a [(&'a str, &'a str)];

const MEMINFO: &str = "MemTotal:  8000 kB\nMemFree: 1 kB\nMemAvailable:  4000 kB\n";

fn machine(name: &str, files: Files<'_>) -> (Folder, Machine) {
    let folder = Folder::new(name);
    for (path, text) in files {
        let path = folder.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let machine = Machine::at(&folder.0);
    (folder, machine)
}

#[test]
fn memory_is_the_smaller_of_machine_and_control_group() {
    let kib = |total: u64, available: u64| {
        Some(Memory {
            total: total << 10,
            available: available << 10,
        })
    };
    let (max, used) = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current");
    let rows: [(&str, Files<'_>, Option<Memory>); 5] = [
        (
            "no control group",
            &[("proc/meminfo", MEMINFO)],
            kib(8000, 4000),
        ),
        (
            "without limit",
            &[("proc/meminfo", MEMINFO), (max, "max\n")],
            kib(8000, 4000),
        ),
        (
            "with a limit",
            &[
                ("proc/meminfo", MEMINFO),
                (max, "3072000\n"),
                (used, "1024000\n"),
            ],
            kib(3000, 2000),
        ),
        (
            "a larger limit",
            &[("proc/meminfo", MEMINFO), (max, "99999999999\n")],
            kib(8000, 4000),
        ),
        ("nothing is said", &[], None),
    ];
    for (case, files, want) in rows {
        let (_folder, machine) = machine("doctor-memory", files);
        assert_eq!(machine.memory(), want, "{case}");
    }
}

#[test]
fn slow_machine_gets_advice() {
    let cpu = "sys/devices/system/cpu";
    let files = [
        (format!("{cpu}/cpu0/topology/thread_siblings_list"), "0-1\n"),
        (format!("{cpu}/cpu1/topology/thread_siblings_list"), "0-1\n"),
        (
            format!("{cpu}/cpu0/cpufreq/scaling_governor"),
            "powersave\n",
        ),
        (format!("{cpu}/cpufreq/boost"), "1\n"),
        ("sys/devices/system/node/node0/meminfo".to_owned(), ""),
        ("sys/devices/system/node/node1/meminfo".to_owned(), ""),
        (
            "sys/kernel/mm/transparent_hugepage/enabled".to_owned(),
            "always madvise [never]\n",
        ),
        (
            "proc/self/limits".to_owned(),
            "Limit  Soft  Hard  Units\nMax open files  256  4096  files\n",
        ),
        ("proc/loadavg".to_owned(), "7.50 1 1 1/1 1\n"),
    ];
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| (path.as_str(), *text))
        .collect();
    let (_folder, machine) = machine("doctor-slow", &files);
    let settings = Settings::default();
    let rows = [
        (
            Some(compute::threads(&machine, &settings, 2)),
            "--threads 1",
        ),
        (compute::huge_pages(&machine), "echo madvise"),
        (compute::memory_nodes(&machine), "--membind"),
        (compute::governor(&machine), "performance"),
        (compute::other_work(&machine, 2), "other work slows"),
        (serving::open_files(&machine, &settings), "LimitNOFILE="),
    ];
    for (finding, words) in rows {
        let finding = finding.unwrap();
        assert_eq!(finding.verdict, Verdict::Better, "{finding}");
        assert!(finding.to_string().contains(words), "{finding}");
    }
}

#[test]
fn silent_kernel_gets_no_advice() {
    let (_folder, machine) = machine("doctor-silent", &[]);
    let settings = Settings::default();
    let found: Vec<Finding> = [
        compute::huge_pages(&machine),
        compute::memory_nodes(&machine),
        compute::governor(&machine),
        compute::other_work(&machine, 2),
        serving::open_files(&machine, &settings),
    ]
    .into_iter()
    .flatten()
    .collect();
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(
        compute::threads(&machine, &settings, 2).verdict,
        Verdict::Good
    );
}

#[test]
fn model_larger_than_memory_is_wrong() {
    let memory = Memory {
        total: 8 << 30,
        available: 4 << 30,
    };
    let rows = [
        (2, Verdict::Good),
        (6, Verdict::Better),
        (9, Verdict::Wrong),
    ];
    for (gib, want) in rows {
        let finding = compute::memory_for(memory, "m", gib << 30);
        assert_eq!(finding.verdict, want, "{finding}");
    }
}

#[test]
fn address_in_use_is_wrong() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut settings = Settings::default();
    settings.server.bind = listener.local_addr().unwrap();
    let finding = serving::port(&settings);
    assert_eq!(finding.verdict, Verdict::Wrong, "{finding}");
    drop(listener);
    settings.server.bind.set_port(0);
    assert_eq!(serving::port(&settings).verdict, Verdict::Good);
}
