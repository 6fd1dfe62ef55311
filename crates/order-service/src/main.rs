//! The binary. Everything is in the library, so that tests run the same `main`.

use std::process::ExitCode;

/// A request makes some fifty small allocations; glibc's allocator takes a twentieth of a replay more for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    order_service::main()
}
