"""Writes tests/fixtures/expm.safetensors: matrices, their exponentials, what scipy makes of them.

    python expm_fixture.py

For every matrix NAME (F64, the bytes that went in):
    NAME.a, NAME.e  [n, n]   the matrix and a direction
    NAME.y, NAME.dy [n, n]   exp(a) and the derivative along e, in whole numbers of 80 digits: the
                             Taylor series of [[a, e], [0, a]] / 2^s, squared s times
    NAME.condition  [1]      of exp at a, relative, in the Frobenius norm (scipy's expm_cond)
    NAME.scipy      [1]      the relative error of scipy.linalg.expm, 1-norm
    NAME.radius     [1]      the largest magnitude of an eigenvalue (numpy)
"""

import pathlib

import mpmath
import numpy as np
import scipy.linalg

import tensorfile

PATH = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "expm.safetensors"


def hippo(n):
    """HiPPO-LegS: lower triangular, far from normal."""
    r = np.sqrt(2 * np.arange(n) + 1)
    return -np.tril(np.outer(r, r), -1) - np.diag(np.arange(n) + 1.0)


def similar(rng, eigenvalues, spread):
    """V diag V^-1 with V's singular values within `spread`."""
    n = len(eigenvalues)
    q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    p, _ = np.linalg.qr(rng.standard_normal((n, n)))
    v = q * np.geomspace(1, spread, n) @ p
    return v @ np.diag(eigenvalues) @ np.linalg.inv(v)


def matrices():
    """(name, matrix) of every case."""
    rng = np.random.default_rng(15)
    for n in (1, 2, 3, 5, 8, 16, 17, 31):
        yield f"random_{n}", rng.standard_normal((n, n)) / np.sqrt(n)
    for exponent in (-8, -3, -1, 1, 2):  # every order, and squarings
        yield f"norm_1e{exponent}", rng.uniform(-1, 1, (5, 5)) * 10.0**exponent / 3
    strict = np.triu(rng.uniform(-3, 3, (8, 8)), 1)
    yield "nilpotent", strict
    q, _ = np.linalg.qr(rng.standard_normal((8, 8)))
    yield "nilpotent_rotated", q @ strict @ q.T
    yield "stiff", similar(rng, -np.geomspace(1e-2, 1e4, 8), 4.0)
    upper = np.triu(rng.uniform(-1, 1, (6, 6)), 1)
    yield "stiff_triangular", upper - np.diag(np.geomspace(1e-3, 1e3, 6))
    yield "badly_scaled_2", np.array([[1.0, 1e6], [0.0, -1.0]])
    scale = np.geomspace(1e-3, 1e3, 6)
    yield "badly_scaled_6", rng.standard_normal((6, 6)) * np.outer(scale, 1 / scale)
    rank_1 = np.outer(rng.standard_normal(7), rng.standard_normal(7))
    yield "nearly_singular", rank_1 + 1e-13 * rng.standard_normal((7, 7))
    k = rng.standard_normal((9, 9))
    yield "rotation", 12.0 * (k - k.T)
    yield "symmetric", (k + k.T) * 2
    yield "hippo_16", hippo(16) * 0.1
    yield "jordan", np.eye(6) * -0.5 + np.eye(6, k=1)


def whole(value, bits):
    """value 2^bits, rounded down."""
    return int(mpmath.floor(mpmath.ldexp(mpmath.mpf(value), bits)))


def wide_expm(a, digits=80):
    """exp(a) in fixed point: whole numbers do the work, with room for the squarings."""
    n = a.shape[0]
    norm = np.abs(a).sum(0).max()
    squarings = max(0, int(np.ceil(np.log2(norm))) + 4)
    bits = int(digits * 3.4) + 4 * squarings
    with mpmath.workprec(2 * bits):
        scaled = [[whole(v, bits - squarings) for v in row] for row in a]
        scaled = np.array(scaled, dtype=object)
        one = 1 << bits
        total = np.array([[one * (i == j) for j in range(n)] for i in range(n)], dtype=object)
        term = total.copy()
        for k in range(1, 200):
            term = (term.dot(scaled) >> bits) // k
            total = total + term
            if not np.any(np.abs(term) > 1):
                break
        for _ in range(squarings):
            total = total.dot(total) >> bits
        return np.array([[float(mpmath.ldexp(int(v), -bits)) for v in row] for row in total])


def main():
    """Writes the file and prints a line for each matrix."""
    rng = np.random.default_rng(16)
    tensors = {}
    for name, a in matrices():
        n = len(a)
        e = rng.uniform(-1, 1, (n, n))
        both = wide_expm(np.block([[a, e], [np.zeros((n, n)), a]]))
        y, dy = both[:n, :n], both[:n, n:]
        of_scipy = np.abs(scipy.linalg.expm(a) - y).sum(0).max() / np.abs(y).sum(0).max()
        condition = scipy.linalg.expm_cond(a)
        radius = np.abs(np.linalg.eigvals(a)).max()
        tensors |= {f"{name}.a": a, f"{name}.e": e, f"{name}.y": y, f"{name}.dy": dy}
        for what, value in (("condition", condition), ("scipy", of_scipy), ("radius", radius)):
            tensors[f"{name}.{what}"] = np.array([value])
        norm = np.abs(a).sum(0).max()
        print(f"{name:18} norm {norm:8.1e} condition {condition:8.1e} scipy {of_scipy:.1e}")
    metadata = {"oracle": "fixed point, 80 digits", "scipy": scipy.__version__}
    tensorfile.write(PATH, tensors, dict.fromkeys(tensors, "F64"), metadata)


if __name__ == "__main__":
    main()
