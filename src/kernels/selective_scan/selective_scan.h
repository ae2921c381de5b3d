// selective_scan: Mamba-1's recurrence, with discretisation, skip and gate in the same pass.
//
// Formula    dt = softplus(dt_raw)
//            h_t[n, e] = exp(dt_t[e] a[n, e]) h_{t-1}[n, e] + dt_t[e] x_t[e] b_t[n]
//            y_t[e] = (sum_n c_t[n] h_t[n, e] + d_skip[e] x_t[e]) silu(z_t[e])
// Operands   dt, x, z, y [L, E]; b, c [L, N]; a [N, E], all negative (the checkpoint's A_log,
//            [E, N], transposed, -exp); d_skip [E]; state [N, E], read and written. y aliases no
//            input. f32. Any L, E, N >= 1. The bias of dt is already in dt_raw.
// Scratch    none; [L, E, N] is never formed. Threads: blocks of channels.
//            Same bits for any split of time and thread count.
// Errors     none; shapes are checked by HOGNOSE_DCHECK.
// Accuracy   a term that is s steps old has relative error (4 s + 8) eps while dt a > -2; a step
//            that leaves less than e^-2 of it adds |dt a| eps.
// Cost       about 13 vector operations per (t, e, n); exp is most of them.
// Source     Gu and Dao 2023, algorithm 2; math.md 1.1. Oracle: SelectiveScanRef, double.
#pragma once

#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

struct SelectiveScanArgs {
  core::Mat<const float> dt = {};
  core::Mat<const float> x = {};
  core::Mat<const float> z = {};
  core::Mat<const float> b = {};
  core::Mat<const float> c = {};
  core::Mat<const float> a = {};
  core::Vec<const float> d_skip = {};
  core::Mat<float> state = {};
  core::Mat<float> y = {};
};

void SelectiveScan(core::Exec& exec, const SelectiveScanArgs& args) noexcept;

void SelectiveScanRef(const SelectiveScanArgs& args);

}  // namespace hognose::kernels
