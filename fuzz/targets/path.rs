#![no_main]

offsetfs_fuzz::target!(path);
