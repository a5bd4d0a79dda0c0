variable "shared" {
  description = "Facts that the pools of all regions share: the root module's output `shared`. `region` is that of the bucket."
  type = object({
    deployment           = string
    account              = string
    partition            = string
    tags                 = map(string)
    region               = string
    bucket               = string
    instance_profile_arn = string
    python               = string
    has_wheels           = bool
    package_index        = bool
    boot_minutes         = number
    datasets             = string
    registries           = set(string)
    max_usd_per_hour     = number
    sweep                = optional(object({ role_arn = string, schedule = string, max_run_hours = number }))
  })
  nullable = false
}

variable "network" {
  description = "Network of the instances: output `network` of modules/network."
  type = object({
    region               = string
    cidr                 = string
    subnets              = map(string)
    security_groups      = map(string)
    has_internet         = bool
    has_public_addresses = bool
  })
  nullable = false
}

variable "pools" {
  description = "Pools of instances by name: image, types, purchases, zones (by default all with a subnet) and caps. `boot` is the assumed start time until one is measured. `boot_minutes` is the limit for joining, by default the module's. `volume_iops` and `volume_mibps` (MiB/s) are the speed of the volume, gp3, above whose free 3,000 and 125 each costs. `efa` needs types that support it. `network_cards` is the number of network cards with an EFA interface, which all types of the pool must have: p4d has 4, p5 32, p5en 16, p6-b200 8. Plans count their bandwidth only. With more than one, instances get no public address. `placement_group` places a pool's instances close together and needs one zone. A pool with `purchases = [\"reserved\"]` launches only into its `reservation`, the id of a capacity reservation, or of a Capacity Block with `capacity_block = true`; it has one type and one zone. `pre_bootstrap` and `post_bootstrap` are texts that bash runs as root: before anything is installed, and when all but the agent is. If one fails, so does the start. They are no place for secrets."
  type = map(object({
    image_id         = string
    instance_types   = list(string)
    max_instances    = number
    max_usd_per_hour = number
    purchases        = optional(list(string), ["spot", "on-demand"])
    zones            = optional(list(string))
    boot             = optional(string, "3m")
    boot_minutes     = optional(number)
    volume_gb        = optional(number, 200)
    volume_iops      = optional(number, 3000)
    volume_mibps     = optional(number, 125)
    efa              = optional(bool, false)
    network_cards    = optional(number, 1)
    placement_group  = optional(bool, false)
    reservation      = optional(string)
    capacity_block   = optional(bool, false)
    pre_bootstrap    = optional(string, "")
    post_bootstrap   = optional(string, "")
  }))
  nullable = false

  validation {
    condition     = length(var.pools) > 0 && alltrue([for name in keys(var.pools) : can(regex("^[a-z0-9][a-z0-9-]{0,62}$", name))])
    error_message = "pools: at least one, named with lower-case letters, digits and hyphens, such as gpu-large."
  }

  validation {
    condition     = alltrue([for pool in var.pools : can(regex("^ami-[0-9a-f]{8,17}$", pool.image_id))])
    error_message = "pools.*.image_id: the id of an image, such as ami-0123456789abcdef0."
  }

  validation {
    condition = alltrue([for pool in var.pools :
      length(pool.instance_types) > 0 && alltrue([for type in pool.instance_types : can(regex("^[a-z0-9-]+\\.[a-z0-9-]+$", type))])
    ])
    error_message = "pools.*.instance_types: at least one type of EC2, such as g5.xlarge."
  }

  validation {
    condition = alltrue([for pool in var.pools :
      length(pool.purchases) > 0 && length(setsubtract(pool.purchases, ["spot", "on-demand"])) == 0 || pool.purchases == tolist(["reserved"])
    ])
    error_message = "pools.*.purchases: spot, on-demand or both; or reserved alone."
  }

  validation {
    condition = alltrue([for pool in var.pools :
      contains(pool.purchases, "reserved") ? can(regex("^cr-[0-9a-f]{8,17}$", pool.reservation)) && length(pool.instance_types) == 1 && try(length(pool.zones), 0) == 1 :
      pool.reservation == null && !pool.capacity_block
    ])
    error_message = "pools.*.reservation: the id of a capacity reservation, such as cr-0123456789abcdef0, with purchases = [\"reserved\"], one type and one zone; other pools have neither reservation nor capacity_block."
  }

  validation {
    condition = alltrue([for pool in var.pools :
      pool.max_instances >= 1 && pool.max_instances <= 100000 && floor(pool.max_instances) == pool.max_instances
    ])
    error_message = "pools.*.max_instances: a whole number from 1 to 100000."
  }

  validation {
    condition     = alltrue([for pool in var.pools : pool.max_usd_per_hour > 0])
    error_message = "pools.*.max_usd_per_hour: more than 0."
  }

  validation {
    condition     = alltrue([for pool in var.pools : can(regex("^[0-9]+(\\.[0-9]+)?[smh]$", pool.boot))])
    error_message = "pools.*.boot: a number with s, m or h, such as 3m."
  }

  validation {
    condition = alltrue([for pool in var.pools : pool.boot_minutes == null ? true :
      pool.boot_minutes >= 3 && pool.boot_minutes <= 120 && floor(pool.boot_minutes) == pool.boot_minutes
    ])
    error_message = "pools.*.boot_minutes: a whole number from 3 to 120, or omit the field for boot_minutes of the module."
  }

  validation {
    condition = alltrue([for pool in var.pools :
      pool.volume_gb >= 8 && pool.volume_gb <= 16384 && floor(pool.volume_gb) == pool.volume_gb
    ])
    error_message = "pools.*.volume_gb: a whole number from 8 to 16384."
  }

  validation {
    condition = alltrue([for pool in var.pools :
      pool.network_cards >= 1 && pool.network_cards <= 32 && floor(pool.network_cards) == pool.network_cards && (pool.efa || pool.network_cards == 1)
    ])
    error_message = "pools.*.network_cards: a whole number from 1 to 32; more than one needs efa = true."
  }

  validation {
    condition = alltrue([for pool in var.pools :
      pool.volume_iops >= 3000 && pool.volume_iops <= min(16000, 500 * pool.volume_gb) && floor(pool.volume_iops) == pool.volume_iops &&
      pool.volume_mibps >= 125 && pool.volume_mibps <= min(1000, pool.volume_iops / 4) && floor(pool.volume_mibps) == pool.volume_mibps
    ])
    error_message = "pools.*.volume_iops, volume_mibps: whole numbers from 3000 to 16000 (500 per GB), and from 125 to 1000 (a quarter of volume_iops)."
  }

  validation {
    condition     = alltrue([for pool in var.pools : pool.zones == null ? true : length(pool.zones) > 0])
    error_message = "pools.*.zones: at least one, or omit the field for all that have a subnet."
  }
}

variable "volume_usd_per_gb_month" {
  description = "Price of a GB of gp3 per month in this region, in US dollars; the default is that of us-east-1. An instance's price includes its volume."
  type        = number
  default     = 0.08
  nullable    = false

  validation {
    condition     = var.volume_usd_per_gb_month >= 0 && var.volume_usd_per_gb_month <= 10
    error_message = "volume_usd_per_gb_month: dollars from 0 to 10, such as 0.08."
  }
}

variable "volume_usd_per_iops_month" {
  description = "Price of each IOPS of gp3 above 3,000 per month in this region, in US dollars; the default is that of us-east-1."
  type        = number
  default     = 0.005
  nullable    = false

  validation {
    condition     = var.volume_usd_per_iops_month >= 0 && var.volume_usd_per_iops_month <= 1
    error_message = "volume_usd_per_iops_month: dollars from 0 to 1, such as 0.005."
  }
}

variable "volume_usd_per_mibps_month" {
  description = "Price of each MiB/s of gp3 above 125 per month in this region, in US dollars; the default is that of us-east-1."
  type        = number
  default     = 0.04
  nullable    = false

  validation {
    condition     = var.volume_usd_per_mibps_month >= 0 && var.volume_usd_per_mibps_month <= 10
    error_message = "volume_usd_per_mibps_month: dollars from 0 to 10, such as 0.04."
  }
}

variable "address_usd_per_hour" {
  description = "Price of an instance's public address per hour, in US dollars; an instance's price includes it. Null: $0.005 if the module's own network gives instances public addresses, else 0. Set it if given subnets do."
  type        = number
  default     = null

  validation {
    condition     = var.address_usd_per_hour == null ? true : var.address_usd_per_hour >= 0 && var.address_usd_per_hour <= 1
    error_message = "address_usd_per_hour: dollars from 0 to 1, such as 0.005."
  }
}

variable "volume_kms_key_arn" {
  description = "Key that encrypts volumes. Null: the account's default key for volumes. For spot, its policy must also allow AWSServiceRoleForEC2Spot to use it."
  type        = string
  default     = null

  validation {
    condition     = var.volume_kms_key_arn == null ? true : can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", var.volume_kms_key_arn))
    error_message = "volume_kms_key_arn: the ARN of a key, not of an alias."
  }
}

variable "identity_certificate" {
  description = "AWS's RSA-2048 certificate for the region's instance identity documents, as PEM, if this release of Castor does not include one."
  type        = string
  default     = null

  validation {
    condition     = var.identity_certificate == null || can(regex("-----BEGIN CERTIFICATE-----", var.identity_certificate))
    error_message = "identity_certificate: a PEM certificate, which begins with -----BEGIN CERTIFICATE-----."
  }
}

variable "additional_security_group_ids" {
  description = "Security groups of all instances, in addition to Castor's."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(var.additional_security_group_ids) <= 4 && alltrue([for id in var.additional_security_group_ids : can(regex("^sg-[0-9a-f]{8,17}$", id))])
    error_message = "additional_security_group_ids: at most 4 ids, such as sg-0123456789abcdef0."
  }
}
