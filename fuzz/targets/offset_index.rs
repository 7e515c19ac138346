#![no_main]

offsetfs_fuzz::target!(offset_index);
