#![no_main]

offsetfs_fuzz::target!(message_set);
