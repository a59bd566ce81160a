"""Fits the coefficients and the cuts of `crates/etude-route/src/calibrate.rs`.

`python calibrate.py SIGNALS [BEFORE]`; SIGNALS is what the `clinc` example writes with `--signals` (with `--vectors` for the
semantic lines). BEFORE is the same of an earlier router, whose cuts are 0.25 and 0.8: the cuts of the new one are then the
lowest at which no kind of table accepts more foreign requests than it did. Needs scikit-learn.
"""
import sys

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score


def probabilities(path):
    routes, triggers, kind, right, fit, lead, nearest, central = np.loadtxt(path).T
    columns = {"fit": np.clip(fit, -2, 2), "lead": np.minimum(lead, 1.5), "nearest": nearest, "central": central, "thin": triggers == 0, "routes": np.log(routes)}
    if not central.any():
        del columns["central"]
    X = np.column_stack(list(columns.values()))
    model = LogisticRegression(C=100, max_iter=2000).fit(X, right)
    print(dict(zip(columns, model.coef_[0].round(2))), "offset", model.intercept_.round(2))
    return routes, triggers, kind, right, model.predict_proba(X)[:, 1]


def lowest(like):
    """The lowest cut at which no kind of table accepts more requests of one foreign kind than before at the cut `like`."""
    smaller = [(routes == size) & (triggers > 0) for size in (3, 8, 20, 50)] + [(routes < 150) & (triggers == 0)]
    tables = smaller + [(routes == 150) & (triggers == count) for count in (0, 3, 5, 10)]
    foreign = [rows & (kind == which) for rows in tables for which in (0, 1)]
    return next(c for c in np.arange(like, 1, 0.01) if all((p[rows] >= c).sum() <= (before[rows] >= like).sum() for rows in foreign))


routes, triggers, kind, right, p = probabilities(sys.argv[1])
print("AUROC right/wrong %.3f" % roc_auc_score(right, p))
groups = {"large": (routes == 150) & (triggers > 0), "small": (routes <= 20) & (triggers > 0), "no triggers": triggers == 0}
for name, rows in groups.items():
    foreign = rows & (kind == 0)
    print(name, "AUROC in/out %.3f" % roc_auc_score(kind[rows & (kind != 1)] == 2, p[rows & (kind != 1)]))
    for cut in (0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 0.8, 0.9):
        lost = ((p < cut) & (right > 0))[rows & (kind == 2)].mean()
        print(f"  {cut}: right ones rejected {lost:.3f}, foreign caught {(p < cut)[foreign].mean():.3f}, right above {right[rows & (p >= cut)].mean():.3f}")
deciles = np.array_split(np.argsort(p), 10)
print("said/was", [(round(float(p[d].mean()), 2), round(float(right[d].mean()), 2)) for d in deciles])
if len(sys.argv) > 2:
    before = probabilities(sys.argv[2])[-1]
    print("cuts", [round(float(lowest(like)), 2) for like in (0.25, 0.8)])
