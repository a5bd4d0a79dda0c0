# Variables that are the same on every cloud. This file is the same in every module: edit that of
# aws/ and run `make terraform-copies` (terraform/README.md).

variable "max_usd_per_hour" {
  description = "Maximum cost of the instances of all pools together, in US dollars per hour. Spot counts at the on-demand price."
  type        = number
  nullable    = false

  validation {
    condition     = var.max_usd_per_hour > 0
    error_message = "max_usd_per_hour: more than 0."
  }
}

variable "fleet_usd" {
  description = "Maximum total cost of all jobs ever, in US dollars, such as \"500\", or \"none\" for no limit. Every job ends with a checkpoint before the limit is exceeded."
  type        = string
  nullable    = false

  validation {
    condition     = var.fleet_usd == "none" || try(tonumber(var.fleet_usd) > 0, false)
    error_message = "fleet_usd: dollars above 0, or none."
  }
}

variable "job_usd" {
  description = "Budget in US dollars of a job that states none, or \"none\"."
  type        = string
  default     = "50"
  nullable    = false

  validation {
    condition     = var.job_usd == "none" || try(tonumber(var.job_usd) > 0, false)
    error_message = "job_usd: dollars above 0, or none."
  }
}

variable "study_usd" {
  description = "Budget in US dollars of a study that states none, or \"none\"."
  type        = string
  default     = "200"
  nullable    = false

  validation {
    condition     = var.study_usd == "none" || try(tonumber(var.study_usd) > 0, false)
    error_message = "study_usd: dollars above 0, or none."
  }
}

variable "lease" {
  description = "Time without contact to the controller after which instances save and end, such as 30m, from 1m to 1d. It applies to instances that join later."
  type        = string
  default     = "30m"
  nullable    = false

  validation {
    condition = try(
      tonumber(regex("^([0-9]+)[smhd]$", var.lease)[0]) * { s = 1, m = 60, h = 3600, d = 86400 }[regex("[smhd]$", var.lease)] >= 60 &&
      tonumber(regex("^([0-9]+)[smhd]$", var.lease)[0]) * { s = 1, m = 60, h = 3600, d = 86400 }[regex("[smhd]$", var.lease)] <= 86400,
    false)
    error_message = "lease: a whole number with s, m, h or d, from 1m to 1d, such as 30m."
  }
}

variable "policy" {
  description = "Policy that plans instances: marginal, static, or one that an installed package brings."
  type        = string
  default     = "marginal"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9_-]*$", var.policy))
    error_message = "policy: the name of a policy, such as marginal."
  }
}

variable "launches_per_minute" {
  description = "Maximum number of launches per minute of all pools together."
  type        = number
  default     = 60
  nullable    = false

  validation {
    condition     = var.launches_per_minute >= 1 && floor(var.launches_per_minute) == var.launches_per_minute
    error_message = "launches_per_minute: a whole number of at least 1."
  }
}

variable "client_cidrs" {
  description = "Address ranges that may call the controller on port 8470: internal ones or those of a VPN. The port is not meant for the internet."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for cidr in var.client_cidrs : can(cidrnetmask(cidr)) && !endswith(cidr, "/0")])
    error_message = "client_cidrs: blocks of IPv4 addresses such as 10.0.0.0/8, but not 0.0.0.0/0."
  }
}

variable "instance_shell" {
  description = "Whether people may open shells on instances of jobs with `castor ssh`: through Session Manager on EC2, through Identity-Aware Proxy on Compute Engine. Shells reach the files and secrets of the jobs."
  type        = bool
  default     = false
  nullable    = false
}

variable "bucket_force_destroy" {
  description = "Whether `terraform destroy` deletes the bucket with its contents. If false, it fails at a bucket that is not empty."
  type        = bool
  default     = false
  nullable    = false
}

variable "lifecycle_days" {
  description = "Days after which the objects under a prefix of the bucket are deleted. Start data of instances is always deleted after one day. Files of jobs, under jobs/, are kept."
  type        = map(number)
  default     = { "bundles/" = 90 }
  nullable    = false

  validation {
    condition = alltrue([for prefix, days in var.lifecycle_days :
      can(regex("^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*/$", prefix)) && days >= 1 && floor(days) == days &&
      !contains(["user-data/", "wheels/"], prefix)
    ])
    error_message = "lifecycle_days: prefixes that end in / with whole days, such as { \"bundles/\" = 90 }; user-data/ and wheels/ have their own rules."
  }
}

variable "package_index" {
  description = "Whether instances install the dependencies of Castor's wheel from pip's index. If false, `wheels_directory` must contain all of them."
  type        = bool
  default     = true
  nullable    = false
}

variable "python" {
  description = "Command or path of Python 3.11 to 3.14 in the images; it needs venv."
  type        = string
  default     = "python3"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9/._-]+$", var.python))
    error_message = "python: a command or a path, such as python3.12."
  }
}

variable "boot_minutes" {
  description = "Minutes from its launch until an instance is ended if its agent has not joined: by itself, and by the controller. Its join token is valid for as long. `boot_minutes` of a pool replaces it."
  type        = number
  default     = 20
  nullable    = false

  validation {
    condition     = var.boot_minutes >= 3 && var.boot_minutes <= 120 && floor(var.boot_minutes) == var.boot_minutes
    error_message = "boot_minutes: a whole number from 3 to 120."
  }
}
