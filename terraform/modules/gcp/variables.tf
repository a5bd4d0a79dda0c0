variable "deployment" {
  description = "Name of this deployment, unique in the project. Names and labels of all that is made have it, and IAM conditions know its instances by it, hence no hyphens."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9]{0,11}$", var.deployment))
    error_message = "deployment: 1 to 12 lower-case letters and digits, a letter first, such as prod."
  }
}

variable "project" {
  description = "The id of the project that it is all made in."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "project: the id of a project, such as my-project-123, not its number."
  }
}

variable "region" {
  description = "The region that it is all made in."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]+(-[a-z]+)+[0-9]{1,2}$", var.region))
    error_message = "region: a region of Google Cloud, such as us-central1."
  }
}

variable "zones" {
  description = "Zones of `region` that instances may be in. The controller is in the first one."
  type        = list(string)
  nullable    = false

  validation {
    condition = (
      length(var.zones) > 0 && length(distinct(var.zones)) == length(var.zones) &&
      alltrue([for zone in var.zones : can(regex("^[a-z]+(-[a-z]+)+[0-9]{1,2}-[a-z]$", zone))])
    )
    error_message = "zones: at least one, each once, such as us-central1-a."
  }
}

variable "pools" {
  description = "Pools of instances by name: image, types, purchases, zones (all of `zones` unless given) and bounds. `accelerator` is for n1, for all other types with GPUs bring their own; `boot` is how long a start takes before any was measured; an instance is deleted `max_run_hours` after its start whatever happens, on `flex-start` after 168 at most; `secure_boot` needs an image whose NVIDIA driver is signed; `compact_placement` keeps a pool's instances close together and needs one zone."
  type = map(object({
    image             = string
    machine_types     = list(string)
    max_instances     = number
    max_usd_per_hour  = number
    accelerator       = optional(object({ type = string, count = number }))
    purchases         = optional(list(string), ["spot", "on-demand"])
    zones             = optional(list(string))
    boot              = optional(string, "3m")
    max_run_hours     = optional(number, 168)
    disk_gb           = optional(number, 200)
    disk_type         = optional(string, "pd-balanced")
    nic_type          = optional(string, "GVNIC")
    secure_boot       = optional(bool, false)
    compact_placement = optional(bool, false)
  }))
  nullable = false

  validation {
    condition     = length(var.pools) > 0 && alltrue([for name in keys(var.pools) : can(regex("^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$", name))])
    error_message = "pools: at least one, named with up to 20 lower-case letters, digits and hyphens, such as gpu-large."
  }

  validation {
    condition     = alltrue([for pool in var.pools : can(regex("^projects/[^/]+/global/images/[^/]+$", pool.image))])
    error_message = "pools.*.image: an image such as projects/my-project/global/images/castor-7: not a family, for a retry has to launch the same."
  }

  validation {
    condition = alltrue([for pool in var.pools :
      length(pool.machine_types) > 0 && alltrue([for type in pool.machine_types : can(regex("^[a-z][a-z0-9]*(-[a-z0-9]+)+$", type))])
    ])
    error_message = "pools.*.machine_types: at least one machine type, such as g2-standard-8."
  }

  validation {
    condition = alltrue([for pool in var.pools : pool.accelerator == null ? true : (
      can(regex("^nvidia-[a-z0-9-]+$", pool.accelerator.type)) && contains([1, 2, 4, 8], pool.accelerator.count) &&
      alltrue([for type in pool.machine_types : startswith(type, "n1-")])
    )])
    error_message = "pools.*.accelerator: a type such as nvidia-tesla-t4, 1, 2, 4 or 8 of it, and machine types of n1 alone: others bring their own."
  }

  validation {
    condition = alltrue([for pool in var.pools :
      length(pool.purchases) > 0 && length(distinct(pool.purchases)) == length(pool.purchases) &&
      length(setsubtract(pool.purchases, ["spot", "on-demand", "flex-start"])) == 0
    ])
    error_message = "pools.*.purchases: of spot, on-demand and flex-start at least one, each once."
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
    condition = alltrue([for pool in var.pools :
      pool.max_run_hours >= 1 && pool.max_run_hours <= 2880 && floor(pool.max_run_hours) == pool.max_run_hours
    ])
    error_message = "pools.*.max_run_hours: a whole number from 1 to 2880, which is 120 days."
  }

  validation {
    condition     = alltrue([for pool in var.pools : !contains(pool.purchases, "flex-start") || pool.max_run_hours <= 168])
    error_message = "pools.*.max_run_hours: on flex-start an instance runs for 168 hours at most, which is 7 days."
  }

  validation {
    condition = alltrue([for pool in var.pools :
      pool.disk_gb >= 10 && pool.disk_gb <= 65536 && floor(pool.disk_gb) == pool.disk_gb
    ])
    error_message = "pools.*.disk_gb: a whole number from 10 to 65536."
  }

  validation {
    condition     = alltrue([for pool in var.pools : contains(["pd-standard", "pd-balanced", "pd-ssd", "hyperdisk-balanced"], pool.disk_type)])
    error_message = "pools.*.disk_type: pd-standard, pd-balanced, pd-ssd or hyperdisk-balanced."
  }

  validation {
    condition     = alltrue([for pool in var.pools : contains(["GVNIC", "VIRTIO_NET"], pool.nic_type)])
    error_message = "pools.*.nic_type: GVNIC or VIRTIO_NET."
  }

  validation {
    condition     = alltrue([for pool in var.pools : pool.zones == null ? true : length(pool.zones) > 0])
    error_message = "pools.*.zones: at least one, or leave it out for all of zones."
  }
}

variable "max_usd_per_hour" {
  description = "What the instances of all pools together may cost an hour, spot counted as on-demand."
  type        = number
  nullable    = false

  validation {
    condition     = var.max_usd_per_hour > 0
    error_message = "max_usd_per_hour: more than 0."
  }
}

variable "fleet_usd" {
  description = "What all jobs together may ever cost, in US dollars, such as \"500\", or \"none\" for no bound: every job ends, with its checkpoint, before that is passed."
  type        = string
  nullable    = false

  validation {
    condition     = var.fleet_usd == "none" || try(tonumber(var.fleet_usd) > 0, false)
    error_message = "fleet_usd: dollars above 0, or none."
  }
}

variable "job_usd" {
  description = "Budget in US dollars of jobs that name none, or \"none\"."
  type        = string
  default     = "50"
  nullable    = false

  validation {
    condition     = var.job_usd == "none" || try(tonumber(var.job_usd) > 0, false)
    error_message = "job_usd: dollars above 0, or none."
  }
}

variable "study_usd" {
  description = "Budget in US dollars of studies that name none, or \"none\"."
  type        = string
  default     = "200"
  nullable    = false

  validation {
    condition     = var.study_usd == "none" || try(tonumber(var.study_usd) > 0, false)
    error_message = "study_usd: dollars above 0, or none."
  }
}

variable "disk_usd_per_gb_month" {
  description = "What a GB of a type of disk costs a month, where it is not what it costs in us-central1 ($0.10 of pd-balanced): the disk of an instance is part of its price."
  type        = map(number)
  default     = {}
  nullable    = false

  validation {
    condition = alltrue([for type, usd in var.disk_usd_per_gb_month :
      contains(["pd-standard", "pd-balanced", "pd-ssd", "hyperdisk-balanced"], type) && usd >= 0 && usd <= 10
    ])
    error_message = "disk_usd_per_gb_month: dollars from 0 to 10 by type of disk, such as { \"pd-balanced\" = 0.11 }."
  }
}

variable "launches_per_minute" {
  description = "How many launches a minute all pools together may have."
  type        = number
  default     = 60
  nullable    = false

  validation {
    condition     = var.launches_per_minute >= 1 && floor(var.launches_per_minute) == var.launches_per_minute
    error_message = "launches_per_minute: a whole number of at least 1."
  }
}

variable "labels" {
  description = "Put on all that is made and can have labels, by Terraform and by Castor."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition = length(var.labels) <= 48 && alltrue([for key, value in var.labels :
      can(regex("^[a-z][a-z0-9_-]{0,62}$", key)) && can(regex("^[a-z0-9_-]{0,63}$", value))
    ])
    error_message = "labels: at most 48; lower-case letters, digits, _ and -, at most 63 of them, and a letter first in a key."
  }

  validation {
    condition     = alltrue([for key in keys(var.labels) : !startswith(key, "castor") && !startswith(key, "goog")])
    error_message = "labels: keys that begin with castor or goog are reserved."
  }
}

variable "network" {
  description = "A network that is there already, in place of one of its own. It needs `subnetwork`. A shared one is of another project, in which Terraform has to be allowed to make firewall rules."
  type        = string
  default     = null

  validation {
    condition     = var.network == null ? true : can(regex("^projects/[^/]+/global/networks/[^/]+$", var.network))
    error_message = "network: as in projects/my-project/global/networks/my-network."
  }
}

variable "subnetwork" {
  description = "The subnetwork of `network` that instances are in. It needs Private Google Access, or a Cloud NAT."
  type        = string
  default     = null

  validation {
    condition     = var.subnetwork == null ? true : can(regex("^projects/[^/]+/regions/[^/]+/subnetworks/[^/]+$", var.subnetwork))
    error_message = "subnetwork: as in projects/my-project/regions/us-central1/subnetworks/my-subnetwork."
  }
}

variable "cidr" {
  description = "Addresses of a network of its own, which are all its instances can have."
  type        = string
  default     = "10.80.0.0/16"
  nullable    = false

  validation {
    condition = (
      can(cidrnetmask(var.cidr)) &&
      try(tonumber(split("/", var.cidr)[1]) >= 8 && tonumber(split("/", var.cidr)[1]) <= 26, false)
    )
    error_message = "cidr: a block of IPv4 addresses from /8 to /26, such as 10.80.0.0/16."
  }
}

variable "internet_access" {
  description = "How instances of a network of its own reach the internet: `nat` (a Cloud NAT), `none` (Google's services alone, by Private Google Access). None has an address outside."
  type        = string
  default     = "nat"
  nullable    = false

  validation {
    condition     = contains(["nat", "none"], var.internet_access)
    error_message = "internet_access: nat or none."
  }
}

variable "egress_cidrs" {
  description = "Where instances may open connections to outside of the network, port 443. Google's services are outside, too; 199.36.153.8/30 is all of them where DNS leads there."
  type        = set(string)
  default     = ["0.0.0.0/0"]
  nullable    = false

  validation {
    condition     = alltrue([for cidr in var.egress_cidrs : can(cidrnetmask(cidr))])
    error_message = "egress_cidrs: blocks of IPv4 addresses, such as 0.0.0.0/0."
  }
}

variable "client_cidrs" {
  description = "From where people may call the controller, port 8470: addresses inside, or of a VPN. It is no port for the internet."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for cidr in var.client_cidrs : can(cidrnetmask(cidr)) && !endswith(cidr, "/0")])
    error_message = "client_cidrs: blocks of IPv4 addresses such as 10.0.0.0/8, and not all addresses there are."
  }
}

variable "controller_cidrs" {
  description = "Where instances find a controller that runs outside of their subnetwork."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for cidr in var.controller_cidrs : can(cidrnetmask(cidr)) && !endswith(cidr, "/0")])
    error_message = "controller_cidrs: blocks of IPv4 addresses such as 10.1.2.3/32, and not all addresses there are."
  }
}

variable "kms_key" {
  description = "The key that the bucket and the messages of events are encrypted with. The service agents of Cloud Storage and Pub/Sub have to be allowed to use it. Null is Google's own."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key == null ? true : can(regex("^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$", var.kms_key))
    error_message = "kms_key: as in projects/my-project/locations/us-central1/keyRings/my-ring/cryptoKeys/my-key."
  }
}

variable "disk_kms_key" {
  description = "The key that disks are encrypted with. The service agent of Compute Engine has to be allowed to use it. Null is Google's own."
  type        = string
  default     = null

  validation {
    condition     = var.disk_kms_key == null ? true : can(regex("^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$", var.disk_kms_key))
    error_message = "disk_kms_key: as in projects/my-project/locations/us-central1/keyRings/my-ring/cryptoKeys/my-key."
  }
}

variable "bucket_name" {
  description = "Name of the bucket. Null: castor-DEPLOYMENT-PROJECT."
  type        = string
  default     = null

  validation {
    condition     = var.bucket_name == null ? true : can(regex("^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$", var.bucket_name))
    error_message = "bucket_name: 3 to 63 lower-case letters, digits and hyphens."
  }
}

variable "bucket_force_destroy" {
  description = "Whether `terraform destroy` deletes the bucket with what is in it. Otherwise it stops at a bucket that is not empty."
  type        = bool
  default     = false
  nullable    = false
}

variable "lifecycle_days" {
  description = "After how many days what lies under a prefix of the bucket is deleted. What instances find at their start goes after one day in any case; what jobs keep, under jobs/, stays."
  type        = map(number)
  default     = { "bundles/" = 90 }
  nullable    = false

  validation {
    condition = alltrue([for prefix, days in var.lifecycle_days :
      can(regex("^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*/$", prefix)) && days >= 1 && floor(days) == days &&
      !contains(["user-data/", "wheels/"], prefix)
    ])
    error_message = "lifecycle_days: prefixes that end in / with whole days, such as { \"bundles/\" = 90 }; user-data/ and wheels/ have rules of their own."
  }
}

variable "datasets" {
  description = "Datasets that instances mount read-only before jobs start, by path: `{ \"/datasets/imagenet\" = \"gs://my-data/imagenet/\" }`. Images need `gcsfuse`, and buckets uniform access, unless they are mounted as a whole."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition = alltrue([for path in keys(var.datasets) :
      length(path) <= 80 && can(regex("^/datasets(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+$", path))
    ])
    error_message = "datasets: paths under /datasets/, at most 80 long, with letters, digits and _.- in their names, such as /datasets/imagenet."
  }

  validation {
    condition = alltrue([for path in keys(var.datasets) :
      alltrue([for other in keys(var.datasets) : !startswith(other, "${path}/")])
    ])
    error_message = "datasets: one of the paths lies under another, where nothing can be mounted: put them side by side."
  }

  validation {
    condition = alltrue([for place in values(var.datasets) :
      can(regex("^gs://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]/([A-Za-z0-9_][A-Za-z0-9_.=+-]*/)*$", place))
    ])
    error_message = "datasets: places that end in /, with letters, digits and _.=+- in their names, such as gs://my-data/imagenet/, or gs://my-data/ for a whole bucket."
  }
}

variable "foreign_buckets" {
  description = "Buckets of `datasets` that are another project's. Nothing is granted in them from here: their owners let the account of instances (`output service_accounts`) read and list."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for bucket in var.foreign_buckets : can(regex("^[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]$", bucket))])
    error_message = "foreign_buckets: names of buckets as in datasets, without gs://."
  }
}

variable "soft_delete_days" {
  description = "For how many days what was deleted from the bucket can be restored, and is billed: none, or 7 to 90."
  type        = number
  default     = 0
  nullable    = false

  validation {
    condition     = var.soft_delete_days == 0 || (var.soft_delete_days >= 7 && var.soft_delete_days <= 90 && floor(var.soft_delete_days) == var.soft_delete_days)
    error_message = "soft_delete_days: 0, or a whole number from 7 to 90."
  }
}

variable "controller_principals" {
  description = "Who may act as the controller's service account, for a controller that does not run on Compute Engine."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition = alltrue([for member in var.controller_principals :
      can(regex("^(user|group|serviceAccount):[^@:/]+@[^@:/]+$", member)) || can(regex("^(principal|principalSet)://iam.googleapis.com/.+$", member))
    ])
    error_message = "controller_principals: members such as user:me@example.com or principal://iam.googleapis.com/...; everybody is nobody in particular."
  }
}

variable "controller" {
  description = "The controller as an instance of Compute Engine, or null for none. `zone` is the first one unless given; `private_ip` is the tenth address of the subnetwork unless given; `disk_gb` is no less than its image needs, `state_gb` the size of the disk that outlasts it; `shell` lets people open one through Identity-Aware Proxy. `secrets_directory` is a directory of the host whose files jobs may name as secrets, and `secret_variables` name variables of `/etc/castor/secrets.env` that they may: you write both there, Terraform never has a value."
  type = object({
    image             = string
    machine_type      = optional(string, "e2-medium")
    zone              = optional(string)
    private_ip        = optional(string)
    disk_gb           = optional(number, 50)
    state_gb          = optional(number, 20)
    secure_boot       = optional(bool, true)
    shell             = optional(bool, true)
    secrets_directory = optional(string)
    secret_variables  = optional(list(string), [])
  })
  default = null

  validation {
    condition     = var.controller == null ? true : can(regex("^projects/[^/]+/global/images/[^/]+$", var.controller.image))
    error_message = "controller.image: an image such as projects/my-project/global/images/castor-7, not a family."
  }

  validation {
    condition     = var.controller == null ? true : can(regex("^[a-z][a-z0-9]*(-[a-z0-9]+)+$", var.controller.machine_type))
    error_message = "controller.machine_type: a machine type, such as e2-medium."
  }

  validation {
    condition     = var.controller == null ? true : try(var.controller.private_ip == null, true) || can(cidrnetmask("${var.controller.private_ip}/32"))
    error_message = "controller.private_ip: an IPv4 address of its subnetwork."
  }

  validation {
    condition = var.controller == null ? true : alltrue([for size in [var.controller.disk_gb, var.controller.state_gb] :
      size >= 10 && size <= 65536 && floor(size) == size
    ])
    error_message = "controller.disk_gb, controller.state_gb: whole numbers from 10 to 65536."
  }

  validation {
    condition     = var.controller == null ? true : try(var.controller.secrets_directory == null, true) || can(regex("^(/[A-Za-z0-9._-]+)+$", var.controller.secrets_directory)) && !can(regex("(^/var/lib/castor(/|$))|(/\\.\\.?(/|$))", var.controller.secrets_directory))
    error_message = "controller.secrets_directory: an absolute path outside of /var/lib/castor, such as /etc/castor/secrets."
  }

  validation {
    condition     = var.controller == null ? true : alltrue([for name in var.controller.secret_variables : can(regex("^[A-Za-z_][A-Za-z0-9_]*$", name))])
    error_message = "controller.secret_variables: names of variables, such as HF_TOKEN."
  }
}

variable "wheels_directory" {
  description = "A local directory with Castor's wheel, which instances install at their start. Null: images have Castor in /opt/castor."
  type        = string
  default     = null

  validation {
    condition     = var.wheels_directory == null ? true : length(fileset(var.wheels_directory, "castor_autoscaler-*.whl")) > 0
    error_message = "wheels_directory: a directory with castor_autoscaler-*.whl, as python -m build --wheel makes it."
  }

  validation {
    condition     = var.wheels_directory == null ? true : alltrue([for wheel in fileset(var.wheels_directory, "*.whl") : can(regex("^[A-Za-z0-9_.+!-]+$", wheel))])
    error_message = "wheels_directory: a wheel in it has a name that none has."
  }
}

variable "package_index" {
  description = "Whether what Castor's wheel needs comes from pip's index. Otherwise `wheels_directory` has to have all of it."
  type        = bool
  default     = true
  nullable    = false
}

variable "python" {
  description = "The Python 3.11 to 3.14 of the images, which has to have venv."
  type        = string
  default     = "python3"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9/._-]+$", var.python))
    error_message = "python: a command or a path, such as python3.12."
  }
}

variable "boot_minutes" {
  description = "An instance whose agent has not joined so long after its start ends itself."
  type        = number
  default     = 20
  nullable    = false

  validation {
    condition     = var.boot_minutes >= 3 && var.boot_minutes <= 120 && floor(var.boot_minutes) == var.boot_minutes
    error_message = "boot_minutes: a whole number from 3 to 120."
  }
}

variable "prices_from" {
  description = "A price list on the controller's host, in place of Google's own. Without a way to Cloud Billing Google's can't be asked."
  type        = string
  default     = null
}
