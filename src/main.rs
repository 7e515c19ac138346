//! The `offsetfs` program: everything happens in the library; here an exit status is made of it.

fn main() -> std::process::ExitCode {
    offsetfs::cli::main()
}
