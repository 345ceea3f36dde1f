// SPDX-License-Identifier: Apache-2.0
//! train.rs: the trainer of README.md in Rust.
use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};
use zoff_sys::*;

fn check(status: zoff_status) -> Result<(), String> {
    let text = || unsafe { CStr::from_ptr(zoff_last_error()) };
    (status >= 0)
        .then_some(())
        .ok_or_else(|| text().to_string_lossy().into_owned())
}

/// Destroys the engine, also after an error.
struct Engine(*mut zoff_engine);
impl Drop for Engine {
    fn drop(&mut self) {
        unsafe { zoff_engine_destroy(self.0) }
    }
}

unsafe fn train(opts: &zoff_engine_opts) -> Result<(), String> {
    let (mut weights, mut grads) = ([0f32; 2], [0f32; 2]);
    // The engine uses both arrays until its end, so from here on they are used by pointers only.
    let (weight, grad) = (weights.as_mut_ptr(), grads.as_mut_ptr());
    let param = zoff_param_desc {
        value: weight.cast(),
        grad: grad.cast(),
        count: 2,
        name: b"line\0".as_ptr().cast(),
        ..Default::default()
    };
    let mut engine = Engine(null_mut());
    check(zoff_engine_open(opts, &param, 1, &mut engine.0))?;
    let mut first = 0; // after a crash: the last complete step, if states persist
    check(zoff_step_count(engine.0, &mut first))?;
    if first > 0 {
        check(zoff_params_push(engine.0))?; // set the weights from the states
    }
    for t in first..2000 {
        let x = (t % 4) as f32 - 1.0;
        let error = *weight * x + *weight.add(1) - (0.5 * x - 0.25);
        (*grad, *grad.add(1)) = (error * x, error);
        check(zoff_step(engine.0, null(), null_mut()))?; // reads grad, updates weight
    }
    let (a, b) = (*weight, *weight.add(1));
    println!("after step {first}: y = {a:.2} x {b:+.2}");
    Ok(())
}

fn main() {
    // train [ds_config [ranks]]; without: AdamW, lr 1e-3, no clipping, DRAM, this process alone
    let words = std::env::args().skip(1).map(CString::new);
    let words: Vec<_> = words
        .map(|word| word.expect("an argument has a 0"))
        .collect();
    let opts = zoff_engine_opts {
        config_path: words.first().map_or(null(), |word| word.as_ptr()),
        ranks: words.get(1).map_or(null(), |word| word.as_ptr()),
        ..Default::default()
    };
    if let Err(text) = unsafe { train(&opts) } {
        eprintln!("{text}");
        std::process::exit(1);
    }
}
