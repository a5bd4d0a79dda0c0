"""Descriptions of the keys of job, study, offers and pool files, as editors show them.

Each has the unit, and says what an absent key means where that is not the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_OBJECTIVE: Final = {
    "preference": "Trade-off of money against time: cheapest, balanced or fastest.",
    "value_of_time": "What an hour of waiting costs its owner, in US dollars.",
    "deadline": "Time from now, or date and time with a time zone, by which the job must end.",
    "budget": "Most US dollars that may be spent; none lifts the default of the deployment.",
    "confidence": "Probability with which deadline and budget are to be kept, from 0.5.",
    "after_deadline": "Rule for a job whose deadline has passed or can't be kept.",
}
_JOB: Final = {
    "name": "Name of the job: lower case letters, digits and hyphens.",
    "program": "Program whose measurements the job shares; by default the name.",
    "command": "Command of the training script, as one text or a list of words, without a shell.",
    "working_directory": "Directory to pack for the instances, relative to this file.",
    "ref": "Commit, branch or tag to pack in place of the files as they are.",
    "bundle_limit": "Largest size of the packed files before compression, as 200MB.",
    "environment": "Environment variables of the script, by name.",
    "secrets": "Sources of secrets at the controller, by the name of the variable.",
    "setup": "Commands to run on an instance before the script starts.",
    "image": "Container image in which the script runs; without it, none.",
    "data": "Files and directories of the instance that the script sees.",
    "batch": "Batch sizes in examples, or fixed.",
    "instances": "Bounds on number and offers of instances; a number is the maximum.",
    "parallelism": "Split of a step between devices.",
    "model": "What a device must hold of the model, for the choice of devices before a run.",
    "objective": "What the job may cost and when it must end.",
    "checkpoint": "Directory, interval and number of checkpoints.",
    "outputs": "Files that the script writes and that are kept.",
    "total_progress": "Examples of the whole training, if the script does not report them.",
    "retries": "Failed starts of the script after which the job fails.",
    "priority": "Weight of the job where jobs compete: low, normal, high, or 0.01 to 100.",
    "stalls": "Consequence of a stall: tell records an event, pause ends with a checkpoint.",
    "kind": "Way of resizing: by its session, or by restarts of its command.",
    "restart": "Checkpoints and times of a restartable job.",
}

DESCRIPTIONS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "JobForm": _JOB,
        "TrialJobForm": _JOB,
        "ObjectiveForm": _OBJECTIVE,
        "BatchForm": {
            "initial": "Batch size in examples for which the learning rate was tuned.",
            "max": "Largest batch size in examples, over all devices.",
            "device_max": "Most examples that one device may process at once.",
            "fixed": "Whether the batch size stays as the script sets it.",
        },
        "InstancesForm": {
            "min": "Fewest instances.",
            "max": "Most instances; by default min.",
            "offers": "Offers or instance types that the job may use; by default all.",
            "spot": "Whether spot instances may be used.",
            "max_of": "Most instances by offer or instance type.",
            "gpu": "GPUs by name, and number on an instance: H100, H100:8, a100-80.",
            "gpu_memory": "Least memory of each GPU, as 80GB.",
            "max_usd_per_hour": "Highest price of all instances together, $/h.",
            "max_instance_usd_per_hour": "Highest price of each instance, $/h.",
        },
        "ParallelismForm": {
            "pipeline": "Stages of a pipeline, each on its own device.",
            "microbatches": "Micro-batches of a step in a pipeline.",
            "near_instances": "Instances that lie together in one rack or zone.",
            "shard": "Devices that hold one copy of the model: a number, a list to choose from, "
            "or auto.",
        },
        "ModelForm": {
            "parameters": "Number of parameters, as 1.2e9.",
            "optimizer": "Optimizer, which decides the bytes of its state.",
            "dtype": "Precision of weights and gradients.",
            "activations": "Memory of activations for one example, as 2MB.",
        },
        "SecretForm": {
            "variable": "Environment variable of the controller.",
            "file": "File of the controller, in an allowed directory.",
        },
        "DataForm": {
            "source": "Absolute path on the instance.",
            "target": "Path in the working directory.",
            "read_only": "Whether the script may only read; by default in containers.",
        },
        "CheckpointForm": {
            "directory": "Directory of checkpoints; by default of the job's own files.",
            "interval": "Time between checkpoints, as 5m; by default from measured costs.",
            "keep": "Number of checkpoints to keep.",
            "adopt": "Job whose checkpoints in the same directory are continued.",
        },
        "OutputsForm": {
            "paths": "Patterns of files in the working directory.",
            "limit": "Largest size of all kept files, as 5GB.",
        },
        "RestartForm": {
            "checkpoint": "Pattern of the files that the command saves, as checkpoints/step-*.",
            "grace": "Time for a last checkpoint after SIGTERM, as 30s.",
            "wait": "Least time between restarts for a resize, as 10m.",
            "progress": "Pattern of the command's output with the number of examples so far.",
        },
        "StudyForm": {
            "name": "Name of the Optuna study.",
            "storage": "URL of the Optuna storage; by default a file in the working directory.",
            "direction": "Direction of each value: minimize or maximize.",
            "sampler": "Sampler of Optuna, by name, or with options.",
            "pruner": "Pruner of Optuna, by name, or with options.",
            "command": "Command of a trial, with parameters in braces.",
            "function": "Function of a trial, as train:objective.",
            "working_directory": "Directory to pack for the instances, relative to this file.",
            "space": "Parameters of the command by name.",
            "objective": "What the study may cost and when it must end.",
            "trials": "Number of trials.",
            "at_once": "Most trials at once; by default as the objective decides.",
            "timeout": "Time after which no trial begins, as 2h.",
            "retries": "Failed starts of a trial after which it fails.",
            "catch": "Errors of trials that do not end the study: all, or classes.",
            "max_failures": "Failed trials after which the study ends.",
            "artifacts": "Place of artifacts.",
            "keep_checkpoints": "Whether checkpoints of ended trials are kept.",
            "job": "Keys of a job file for each trial.",
        },
        "ParameterForm": {
            "float": "Lowest and highest value of a real number.",
            "int": "Lowest and highest value of a whole number.",
            "choice": "Values to choose from.",
            "step": "Distance of neighbouring values.",
            "log": "Whether values are drawn on a logarithmic scale.",
        },
        "OffersForm": {
            "offers": "Instances that can be had.",
            "limits": "Limits on devices, instances or US dollars an hour.",
            "prices_from": "Lists of prices, the first of which with the type applies.",
            "discounts": "Agreed prices; the first that matches applies.",
        },
        "OfferForm": {
            "id": "Name of the offer; by default type and purchase.",
            "type": "Instance type of the catalogue, as g5.12xlarge.",
            "provider": "Provider; by default that of the catalogue, or pool.",
            "purchase": "Way of buying.",
            "zone": "Zone; by default the region of the catalogue.",
            "devices": "Devices of one instance.",
            "device_kind": "Kind of device, as a100-80.",
            "usd_per_hour": "Price of one instance, in US dollars an hour.",
            "boot": "Time from the order to the first step, as 3m.",
            "network": "Bandwidth of one instance, as 25Gbit/s.",
            "reclaims_per_hour": "Expected reclaims of a spot instance in an hour.",
            "minimum_billed": "Shortest time that is billed, as 60s.",
            "profile": "Name of the device kind in application profiles.",
            "max_instances": "Most instances of this offer.",
            "max_devices": "Most devices of this offer.",
            "until": "End of a reservation, with a time zone.",
            "trace": "File of capacity over time, for simulations.",
        },
        "LimitForm": {
            "name": "Name of the limit.",
            "devices": "Most devices.",
            "instances": "Most instances.",
            "usd_per_hour": "Most US dollars an hour.",
            "offers": "Offers that are counted; by default all.",
        },
        "PricesForm": {
            "file": "List of prices, relative to this file.",
            "as_of": "Date of the list, as 2026-07-20.",
        },
        "DiscountForm": {
            "provider": "Provider whose prices are reduced.",
            "type": "Pattern of instance types, as g5*.",
            "purchase": "Way of buying.",
            "factor": "Factor on the price: 0.8 for 20 % off.",
            "usd_per_hour": "Agreed price in US dollars an hour, in place of a factor.",
            "reason": "Reason, which is shown beside the price.",
        },
        "ClusterForm": {
            "nodes": "Groups of equal nodes.",
            "restart_seconds": "Restart time in seconds by application.",
            "slowdown": "Factor on step times by application.",
            "profiled": "Whether jobs were measured on each kind of device before submission.",
        },
        "NodeGroupForm": {
            "kind": "Kind of device in application profiles.",
            "count": "Number of nodes.",
            "devices": "Devices of each node.",
        },
    }
)
