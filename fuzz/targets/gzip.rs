#![no_main]

offsetfs_fuzz::target!(gzip);
