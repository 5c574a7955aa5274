#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/golden/dpmpp.safetensors: trajectories of DPM-Solver++, of the published code of Wan and of diffusers.

    tools/make_dpmpp_golden.py OUTPUT WAN2.1/wan/utils/fm_solvers.py

The file is as make_scheduler_golden.py writes it. Cases p00, p01, ... come from the class of the published code, on its
own list of sigmas; their scheduler_config.json has the same settings in diffusers' words. Cases d00, d01, ... come from
diffusers' DPMSolverMultistepScheduler, loaded from the scheduler_config.json.
"""
import importlib.util, json, sys

import torch
from safetensors.torch import save_file

from make_scheduler_golden import run, trajectory

BASE = {"_class_name": "DPMSolverMultistepScheduler", "prediction_type": "flow_prediction", "use_flow_sigmas": True,
        "flow_shift": 3.0}
LAST = {"final_sigmas_type": "sigma_min"}
PUBLISHED = [  # the fields that are changed, and the numbers of steps
    ({}, (1, 4, 15)),
    ({"flow_shift": 5.0}, (2, 30)),
    ({"flow_shift": 12.0}, (4, 14)),
    ({"solver_order": 1}, (4, 15)),
    ({"solver_order": 3}, (1, 2, 3, 4, 14, 15)),
    ({"solver_type": "heun"}, (4, 15)),
    ({"solver_order": 3, "solver_type": "heun"}, (14,)),
    ({"lower_order_final": False}, (4, 14)),
    ({"solver_order": 3, "lower_order_final": False}, (4, 14)),
    ({"euler_at_final": True}, (4,)),
]
DIFFUSERS = [
    ({}, (1, 2, 4, 14, 15, 30)),
    ({"flow_shift": 1.0}, (5, 9)),  # with 9 steps, the rounding of sigmas decides between two time steps
    ({"flow_shift": 12.0}, (5,)),
    ({"solver_order": 1}, (4,)),
    ({"solver_order": 3}, (1, 2, 3, 4, 14, 15)),
    ({"solver_type": "heun"}, (4, 14, 15)),
    ({"solver_order": 3, "solver_type": "heun"}, (4,)),
    ({"lower_order_final": False}, (4,)),
    ({"lower_order_final": None, "solver_order": 3}, (14,)),
    ({"euler_at_final": True}, (15,)),
    ({**LAST}, (1, 4, 15)),
    ({**LAST, "lower_order_final": False, "solver_order": 3, "solver_type": "heun"}, (4,)),
    ({**LAST, "solver_order": 3}, (14, 15)),
    ({**LAST, "euler_at_final": True}, (15,)),
    ({**LAST, "beta_start": 0.02}, (4,)),
    ({**LAST, "beta_start": 0.00085, "beta_schedule": "scaled_linear"}, (4,)),
    ({"num_train_timesteps": 500}, (5,)),
    ({"num_train_timesteps": 40}, (5,)),
    ({"solver_type": "bh2"}, (4,)),
    ({"solver_type": "logrho", "thresholding": None, "variance_type": None, "use_lu_lambdas": None}, (4,)),
    # fields without effect
    ({"beta_start": 0.01, "beta_end": 0.5, "beta_schedule": "squaredcos_cap_v2"}, (4,)),
    ({"trained_betas": [0.001, 0.002, 0.003], "rescale_betas_zero_snr": True}, (4,)),
    ({"timestep_spacing": "leading", "steps_offset": 1}, (4,)),
    ({"timestep_spacing": "trailing", "time_shift_type": "exponential"}, (4,)),
    ({"dynamic_thresholding_ratio": 0.5, "sample_max_value": 0.1}, (4,)),
    ({"lambda_min_clipped": -float("inf")}, (4,)),
    ({"lambda_min_clipped": -5.1}, (4,)),
    ({"shift_terminal": 0.1, "disable_corrector": [0], "a_field_of_tomorrow": [1, 2]}, (4,)),
]


def published_code(path):
    spec = importlib.util.spec_from_file_location("fm_solvers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def published_run(code, config, steps, noise):
    settings = {key: value for key, value in config.items() if key in ("solver_order", "solver_type",
                                                                       "lower_order_final", "euler_at_final")}
    s = code.FlowDPMSolverMultistepScheduler(num_train_timesteps=1000, shift=1, use_dynamic_shifting=False, **settings)
    code.retrieve_timesteps(s, device="cpu", sigmas=code.get_sampling_sigmas(steps, config["flow_shift"]))
    return trajectory(s, config, noise)


def main():
    code = published_code(sys.argv[2])
    noise = torch.randn(3, dtype=torch.float32, generator=torch.Generator().manual_seed(7))
    tensors, texts = {"noise": noise}, {}
    for letter, cases in ("p", PUBLISHED), ("d", DIFFUSERS):
        jobs = [({**BASE, **change}, steps) for change, counts in cases for steps in counts]
        for i, (config, steps) in enumerate(jobs):
            name = f"{letter}{i:02d}"
            texts[name] = json.dumps(config)
            found = (published_run(code, config, steps, noise.double()) if letter == "p"
                     else run(config, steps, noise.double()))
            for key, value in found.items():
                tensors[f"{name}.{key}"] = value.contiguous()
    print(len(texts), "cases")
    save_file(tensors, sys.argv[1], metadata=texts)


if __name__ == "__main__":
    main()
