//! The binary. Everything is in the library, so that tests run the same `main`.

use std::process::ExitCode;

fn main() -> ExitCode {
    order_service::main()
}
