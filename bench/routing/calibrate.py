"""Fits the coefficients of `crates/etude-route/src/calibrate.rs`.

`python calibrate.py SIGNALS`; SIGNALS is what the `clinc` example writes with `--signals` (with `--vectors` for the
semantic line). Needs scikit-learn.
"""
import sys

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

routes, triggers, kind, right, fit, lead, nearest, central = np.loadtxt(sys.argv[1]).T
columns = {"fit": np.clip(fit, -2, 2), "lead": np.minimum(lead, 1.5), "nearest": nearest, "central": central, "thin": triggers == 0, "routes": np.log(routes)}
if not central.any():
    del columns["central"]
X = np.column_stack(list(columns.values()))
model = LogisticRegression(C=100, max_iter=2000).fit(X, right)
p = model.predict_proba(X)[:, 1]
print(dict(zip(columns, model.coef_[0].round(2))), "offset", model.intercept_.round(2))
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
