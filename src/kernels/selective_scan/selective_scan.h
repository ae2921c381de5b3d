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

// SelectiveScanGrad: the gradient of a loss, given its gradients dy and dstate by what the forward
// pass returned. The states in between are computed again, so that nothing of it has to be kept.
//
// Formula    with g the gradient by h_t (dstate at the start), g_y = dy silu(z), from the last step
//            to the first:
//              g[n] += g_y c_t[n]            dc_t[n] = sum_e g_y h_t[n]
//              s = sum_n g[n] b_t[n]         db_t[n] = sum_e g[n] dt x
//              g[n] *= exp(dt a[n])          g q = g[n] h_{t-1}[n], with this new g
//              w = sum_n a[n] (g q)[n]       da[n] += dt (g q)[n]
//              dx = d_skip g_y + dt s        ddt = (x s + w) sigmoid(dt_raw)
//              dd_skip += g_y x              dz = dy silu'(z) (sum_n c_t[n] h_t[n] + d_skip x)
//            The last g is the gradient by the state before the first step. Above dt_raw = 20,
//            where softplus is the identity, the derivative is 1.
// Operands   dt, x, z, b, c, a, d_skip as in the forward pass; state [N, E], before the first step.
//            dy [L, E]. dstate [N, E]: in by the last state, out by the first one. ddt (by dt_raw),
//            dx, dz [L, E] and db, dc [L, N] are written; da [N, E] and dd_skip [E] are added to,
//            or not wanted when empty. No result aliases another operand.
// Scratch    SelectiveScanGradScratch(L, E, N) floats: the states at the edges of blocks of time,
//            about L E N / 16, and each task's part of db and dc, about L E N / 32.
//            Threads: blocks of channels, then rows of db and dc.
//            Same bits for any thread count. Pieces of a sequence may be chained from the last to
//            the first through dstate, with the state before each as input; that gives the same
//            gradients up to rounding.
// Errors     none; shapes are checked by HOGNOSE_DCHECK.
// Accuracy   of the size of a sum's terms: as the forward pass, a term with a state s steps old and
//            a gradient s' steps old being s + s' old; eps / 2 for each term of the sums over E
//            (db, dc), N (dx, dz, ddt) and L (da, dd_skip).
// Cost       the states are computed twice and swept once, about 60 vector operations per
//            (t, e, n): 2 to 2.3 times the forward pass's time.
// Source     math.md 1.1. Oracle: SelectiveScanGradRef, double; itself held against differences.
struct SelectiveScanGradArgs {
  core::Mat<const float> dt = {};
  core::Mat<const float> x = {};
  core::Mat<const float> z = {};
  core::Mat<const float> b = {};
  core::Mat<const float> c = {};
  core::Mat<const float> a = {};
  core::Vec<const float> d_skip = {};
  core::Mat<const float> state = {};
  core::Mat<const float> dy = {};
  core::Mat<float> dstate = {};
  core::Mat<float> ddt = {};
  core::Mat<float> dx = {};
  core::Mat<float> dz = {};
  core::Mat<float> db = {};
  core::Mat<float> dc = {};
  core::Mat<float> da = {};
  core::Vec<float> dd_skip = {};
  core::Vec<float> scratch = {};
};

// l, e, n: the sizes L, E, N of a call.
size_t SelectiveScanGradScratch(size_t l, size_t e, size_t n) noexcept;

void SelectiveScanGrad(core::Exec& exec, const SelectiveScanGradArgs& args) noexcept;

void SelectiveScanGradRef(const SelectiveScanGradArgs& args);

}  // namespace hognose::kernels
