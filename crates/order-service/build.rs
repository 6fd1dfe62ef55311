//! The migrations are compiled in: a new one must be seen although no Rust file has changed.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
