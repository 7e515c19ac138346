#![no_main]

offsetfs_fuzz::target!(lz4);
