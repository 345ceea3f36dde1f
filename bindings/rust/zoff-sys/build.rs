// SPDX-License-Identifier: Apache-2.0
//! Finds libzoff by pkg-config, which PKG_CONFIG_PATH directs. Without pkg-config the linker looks in its own folders.
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let output = Command::new("pkg-config")
        .args(["--variable=libdir", "zoff"])
        .output();
    match output {
        Ok(output) if output.status.success() => {
            println!(
                "cargo:rustc-link-search=native={}",
                String::from_utf8_lossy(&output.stdout).trim()
            );
        }
        Ok(output) => println!(
            "cargo:warning={}",
            String::from_utf8_lossy(&output.stderr)
                .trim()
                .replace('\n', " ")
        ),
        Err(error) => println!("cargo:warning=pkg-config: {error}"),
    }
}
