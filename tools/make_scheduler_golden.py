#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/golden/scheduler.safetensors: the runs of diffusers' schedulers with each field of their configuration.

    tools/make_scheduler_golden.py OUTPUT

Every case is a scheduler_config.json (in the metadata, by the case's name) and a number of steps. The scheduler is loaded
from that file and makes its own list of sigmas, as in diffusers' pipeline; the velocity is the same as in
make_sampler_golden.py. Sigmas are f32, as diffusers keeps them; everything made from them is float64 here. Tensors:
`noise` [24], and for each case `.sigmas`, `.timesteps` (float64) and `.x` [steps, 24] after every step.
"""
import json, os, sys, tempfile

import diffusers, torch
from safetensors.torch import save_file

from make_sampler_golden import velocity

UNIPC = {"_class_name": "UniPCMultistepScheduler", "prediction_type": "flow_prediction", "use_flow_sigmas": True,
         "flow_shift": 3.0}
EULER = {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3.0}
TRAINED = [0.001 + 0.00001 * i for i in range(1000)]
CASES = [  # the fields that are changed, and the numbers of steps
    (UNIPC, {}, (1, 2, 8)),
    (UNIPC, {"flow_shift": 1.0}, (5,)),
    (UNIPC, {"flow_shift": 7.5}, (5,)),
    (UNIPC, {"solver_order": 1}, (1, 2, 7)),
    (UNIPC, {"solver_order": 1, "lower_order_final": False}, (7,)),
    (UNIPC, {"solver_order": 3}, (1, 2, 3, 4, 12, 40)),
    (UNIPC, {"solver_order": 3, "disable_corrector": [1, 2]}, (8,)),
    (UNIPC, {"disable_corrector": [0]}, (1, 6)),
    (UNIPC, {"disable_corrector": [2, 0, -1, 99]}, (6,)),
    (UNIPC, {"disable_corrector": [0, 1, 2, 3, 4, 5]}, (6,)),
    (UNIPC, {"final_sigmas_type": "sigma_min"}, (1, 2, 6)),
    (UNIPC, {"final_sigmas_type": "sigma_min", "solver_order": 3}, (6,)),
    (UNIPC, {"shift_terminal": 0.1}, (2, 6)),
    (UNIPC, {"shift_terminal": 0.7, "final_sigmas_type": "sigma_min"}, (6,)),
    (UNIPC, {"shift_terminal": 0}, (6,)),
    (UNIPC, {"num_train_timesteps": 500}, (6,)),
    (UNIPC, {"num_train_timesteps": 40}, (6,)),
    (UNIPC, {"num_train_timesteps": 2000, "shift_terminal": 0.05, "solver_order": 3, "disable_corrector": [1]}, (9,)),
    (UNIPC, {"solver_type": "midpoint"}, (6,)),
    (UNIPC, {"solver_type": "heun"}, (6,)),
    (UNIPC, {"solver_type": "logrho"}, (6,)),
    # fields without effect
    (UNIPC, {"beta_start": 0.01}, (6,)),
    (UNIPC, {"beta_end": 0.5}, (6,)),
    (UNIPC, {"beta_schedule": "scaled_linear"}, (6,)),
    (UNIPC, {"beta_schedule": "squaredcos_cap_v2"}, (6,)),
    (UNIPC, {"trained_betas": TRAINED[:5]}, (6,)),
    (UNIPC, {"rescale_betas_zero_snr": True}, (6,)),
    (UNIPC, {"timestep_spacing": "leading"}, (6,)),
    (UNIPC, {"timestep_spacing": "trailing", "steps_offset": 1}, (6,)),
    (UNIPC, {"time_shift_type": "linear"}, (6,)),
    (UNIPC, {"sigma_min": 0.1, "sigma_max": 0.7}, (6,)),
    (UNIPC, {"dynamic_thresholding_ratio": 0.5}, (6,)),
    (UNIPC, {"sample_max_value": 0.1}, (6,)),
    (UNIPC, {"thresholding": None, "solver_p": None}, (6,)),
    (UNIPC, {"shift": 9.0, "a_field_of_tomorrow": [1, 2]}, (6,)),
    (EULER, {}, (1, 2, 6, 50)),
    (EULER, {"shift": 1.0}, (6,)),
    (EULER, {"shift": 12.0}, (6,)),
    (EULER, {"shift": 0.3}, (6,)),
    (EULER, {"num_train_timesteps": 500}, (6,)),
    (EULER, {"num_train_timesteps": 7, "shift": 5.0}, (6,)),
    (EULER, {"shift_terminal": 0.1}, (2, 6)),
    (EULER, {"shift_terminal": 0.02, "num_train_timesteps": 2000}, (6,)),
    # fields without effect
    (EULER, {"base_shift": 0.1, "max_shift": 7.0}, (6,)),
    (EULER, {"base_image_seq_len": 1, "max_image_seq_len": 2}, (6,)),
    (EULER, {"time_shift_type": "linear"}, (6,)),
    (EULER, {"flow_shift": 9.0, "sigma_min": 0.5, "use_flow_sigmas": False}, (6,)),
]


def load(config):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "scheduler_config.json"), "w") as f:
            json.dump(config, f)
        return getattr(diffusers, config["_class_name"]).from_pretrained(folder)


def run(config, steps, noise):
    s = load(config)
    s.set_timesteps(steps)
    return trajectory(s, config, noise)


def trajectory(s, config, noise):
    """The run of a scheduler that has its time steps."""
    sigmas, timesteps = s.sigmas.clone(), s.timesteps.clone()
    s.sigmas = s.sigmas.double()
    s.set_begin_index(0)
    x, trace = noise[None].clone(), []
    for t in timesteps:
        v = velocity(x, t.double())
        if "Euler" not in config["_class_name"]:
            x = s.step(v, t, x, return_dict=False)[0]
        else:                                 # diffusers' own step rounds to f32
            i = len(trace)
            x = x + (s.sigmas[i + 1] - s.sigmas[i]) * v
        trace.append(x[0].float())
    x = torch.stack(trace)
    assert x.isfinite().all(), config
    return {"sigmas": sigmas.float(), "timesteps": timesteps.double(), "x": x}


def main():
    torch.manual_seed(6)
    noise = torch.randn(24, dtype=torch.float32)
    tensors, texts = {"noise": noise}, {}
    for base, change, counts in CASES:
        for steps in counts:
            name = f"{len(texts):03d}"
            texts[name] = json.dumps({**base, **change})
            for key, value in run({**base, **change}, steps, noise.double()).items():
                tensors[f"{name}.{key}"] = value.contiguous()
    save_file(tensors, sys.argv[1], metadata=texts)


if __name__ == "__main__":
    main()
