"""Prints how large a norm each Pade approximant of exp may have: the bounds of expm_pade.h.

With r the approximant of order m, log(exp(-x) r(x)) = sum of c_k x^k from k = 2m + 1 on. `value` is
where sum |c_k| x^(k-1) is u, half the type's epsilon; `derivative` where sum k |c_k| x^(k-1) is.
"""

from mpmath import factorial, mp, mpf, nstr

TERMS = 150
mp.dps = 120


def coefficients(m):
    """Those of the numerator, with a constant of 1."""
    return [
        factorial(2 * m - j) * factorial(m) / (factorial(2 * m) * factorial(m - j) * factorial(j))
        for j in range(m + 1)
    ]


def log_series(p):
    """The series of log(p) for a series p with p[0] = 1: its derivative is p' / p."""
    quotient = []
    for k in range(TERMS):
        rest = sum(p[j] * quotient[k - j] for j in range(1, k + 1))
        quotient.append((k + 1) * p[k + 1] - rest)
    return [mpf(0)] + [q / (k + 1) for k, q in enumerate(quotient)]


def bound(terms, first, u):
    """Where the sum of terms[k] x^(k-1) from `first` on is u."""
    low, high = mpf(0), mpf(20)
    for _ in range(200):
        middle = (low + high) / 2
        total = sum(terms[k] * middle ** (k - 1) for k in range(first, TERMS + 1))
        low, high = (middle, high) if total <= u else (low, middle)
    return low


def main():
    """One line for each order and type."""
    for m in (3, 5, 7, 9, 13):
        b = coefficients(m)
        numerator = b + [mpf(0)] * (TERMS + 1 - len(b))
        denominator = [(-1) ** j * x for j, x in enumerate(numerator)]
        pairs = zip(log_series(numerator), log_series(denominator))
        c = [abs(p - q) for p, q in pairs]
        for name, u in (("f64", mpf(2) ** -53), ("f32", mpf(2) ** -24)):
            value = bound(c, 2 * m + 1, u)
            derivative = bound([k * x for k, x in enumerate(c)], 2 * m + 1, u)
            print(m, name, "value", nstr(value, 17), "derivative", nstr(derivative, 17))


if __name__ == "__main__":
    main()
