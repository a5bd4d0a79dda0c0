variable "deployment" {
  description = "Name of this deployment, unique in the project. Names and labels of all resources contain it, and IAM conditions recognise the deployment's instances by it; hence no hyphens."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9]{0,11}$", var.deployment))
    error_message = "deployment: 1 to 12 lower-case letters and digits, a letter first, such as prod."
  }
}

variable "project" {
  description = "Id of the project of all resources."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "project: the id of a project, such as my-project-123, not its number."
  }
}

variable "enable_services" {
  description = "Whether Terraform enables the services of Google Cloud that the module needs (`output services`). It then needs `serviceusage.services.enable`, and a project in which `cloudresourcemanager.googleapis.com` and `serviceusage.googleapis.com` are enabled. Services stay enabled after `terraform destroy`."
  type        = bool
  default     = false
  nullable    = false
}

variable "region" {
  description = "Region of the controller, of the bucket, and of pools that name no other."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]+(-[a-z]+)+[0-9]{1,2}$", var.region))
    error_message = "region: a region of Google Cloud, such as us-central1."
  }
}

variable "zones" {
  description = "Zones of `region` for instances. The controller is in the first one."
  type        = list(string)
  nullable    = false

  validation {
    condition = (
      length(var.zones) > 0 && length(distinct(var.zones)) == length(var.zones) &&
      alltrue([for zone in var.zones : can(regex("^[a-z]+(-[a-z]+)+[0-9]{1,2}-[a-z]$", zone))])
    )
    error_message = "zones: at least one, and none twice, such as us-central1-a."
  }
}

variable "other_regions" {
  description = "Other regions of pools, at most 3: zones, address range `cidr` of the subnetwork in a new network, or `subnetwork` of an existing one, and prices of disks as in `disk_usd_per_gb_month`."
  type = map(object({
    zones                 = list(string)
    cidr                  = optional(string)
    subnetwork            = optional(string)
    disk_usd_per_gb_month = optional(map(number), {})
  }))
  default  = {}
  nullable = false

  validation {
    condition = length(var.other_regions) <= 3 && alltrue([for name, region in var.other_regions :
      can(regex("^[a-z]+(-[a-z]+)+[0-9]{1,2}$", name)) && length(region.zones) > 0 && alltrue([for zone in region.zones : can(regex("^${name}-[a-z]$", zone))])
    ])
    error_message = "other_regions: at most 3 regions, each with zones of its own, such as { europe-west4 = { zones = [\"europe-west4-a\"], cidr = \"10.81.0.0/20\" } }."
  }

  validation {
    condition     = alltrue([for region in var.other_regions : region.cidr == null || can(cidrnetmask(region.cidr))])
    error_message = "other_regions.*.cidr: blocks of IPv4 addresses, such as 10.81.0.0/20."
  }

  validation {
    condition     = alltrue([for region in var.other_regions : region.subnetwork == null || can(regex("^projects/[^/]+/regions/[^/]+/subnetworks/[^/]+$", region.subnetwork))])
    error_message = "other_regions.*.subnetwork: a path such as projects/my-project/regions/europe-west4/subnetworks/my-subnetwork."
  }
}

variable "pools" {
  description = "Pools of instances by name: image, types, purchases, region (by default the module's; else one of `other_regions`), zones (by default all of the region) and caps. `accelerator` is for n1 only, since all other types with GPUs include them. `boot` is the assumed start time until one is measured. `disk_type` must fit all of `machine_types`: A3 Ultra and A4 take only `hyperdisk-balanced`, which A2, G2 and N1 do not take. `boot_minutes` is the limit for joining, by default the module's. Compute Engine deletes an instance `max_run_hours` after its start in any case, but in a reservation; on `flex-start` the maximum is 168. `secure_boot` needs an image with a signed NVIDIA driver. `compact_placement` places a pool's instances close together and needs one zone. A pool with `purchases = [\"reserved\"]` launches only into its `reservation`, a specific one of the project; it has one machine type and one zone. `reservation_bound` is for what is sold by reservation only, as A4, and in calendar mode: its instances end with the reservation."
  type = map(object({
    image             = string
    machine_types     = list(string)
    max_instances     = number
    max_usd_per_hour  = number
    accelerator       = optional(object({ type = string, count = number }))
    purchases         = optional(list(string), ["spot", "on-demand"])
    region            = optional(string)
    zones             = optional(list(string))
    boot              = optional(string, "3m")
    boot_minutes      = optional(number)
    max_run_hours     = optional(number, 168)
    disk_gb           = optional(number, 200)
    disk_type         = optional(string, "pd-balanced")
    nic_type          = optional(string, "GVNIC")
    secure_boot       = optional(bool, false)
    compact_placement = optional(bool, false)
    reservation       = optional(string)
    reservation_bound = optional(bool, false)
  }))
  nullable = false

  validation {
    condition     = length(var.pools) > 0 && alltrue([for name in keys(var.pools) : can(regex("^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$", name))])
    error_message = "pools: at least one, named with up to 20 lower-case letters, digits and hyphens, such as gpu-large."
  }

  validation {
    condition     = alltrue([for pool in var.pools : can(regex("^projects/[^/]+/global/images/[^/]+$", pool.image))])
    error_message = "pools.*.image: an image such as projects/my-project/global/images/castor-7: not a family, since a retry must launch the same image."
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
    error_message = "pools.*.accelerator: a type such as nvidia-tesla-t4, a count of 1, 2, 4 or 8, and n1 machine types only: other types include their accelerators."
  }

  validation {
    condition = alltrue([for pool in var.pools :
      length(pool.purchases) > 0 && length(distinct(pool.purchases)) == length(pool.purchases) &&
      length(setsubtract(pool.purchases, ["spot", "on-demand", "flex-start"])) == 0 || pool.purchases == tolist(["reserved"])
    ])
    error_message = "pools.*.purchases: at least one of spot, on-demand and flex-start, and none twice; or reserved alone."
  }

  validation {
    condition = alltrue([for pool in var.pools :
      contains(pool.purchases, "reserved") ? can(regex("^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$", pool.reservation)) && length(pool.machine_types) == 1 && try(length(pool.zones), 0) == 1 :
      pool.reservation == null && !pool.reservation_bound
    ])
    error_message = "pools.*.reservation: the name of a reservation of the project, with purchases = [\"reserved\"], one machine type and one zone; other pools have neither reservation nor reservation_bound."
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
      pool.max_run_hours >= 1 && pool.max_run_hours <= 2880 && floor(pool.max_run_hours) == pool.max_run_hours
    ])
    error_message = "pools.*.max_run_hours: a whole number from 1 to 2880, which is 120 days."
  }

  validation {
    condition     = alltrue([for pool in var.pools : !contains(pool.purchases, "flex-start") || pool.max_run_hours <= 168])
    error_message = "pools.*.max_run_hours: at most 168 on flex-start, which is 7 days."
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
    error_message = "pools.*.zones: at least one, or omit the field for all of zones."
  }
}

variable "disk_usd_per_gb_month" {
  description = "Price of a GB per month by type of disk, in US dollars, where it differs from us-central1 ($0.10 for pd-balanced). An instance's price includes its disk."
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

variable "labels" {
  description = "Labels of all resources that Terraform and Castor create and that can have labels."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition = length(var.labels) <= 48 && alltrue([for key, value in var.labels :
      can(regex("^[a-z][a-z0-9_-]{0,62}$", key)) && can(regex("^[a-z0-9_-]{0,63}$", value))
    ])
    error_message = "labels: at most 48; keys and values of at most 63 lower-case letters, digits, _ and -; keys begin with a letter."
  }

  validation {
    condition     = alltrue([for key in keys(var.labels) : !startswith(key, "castor") && !startswith(key, "goog")])
    error_message = "labels: keys that begin with castor or goog are reserved."
  }
}

variable "network" {
  description = "Existing network to use instead of a new one. It needs `subnetwork`. A shared network belongs to another project, in which Terraform must be allowed to create firewall rules."
  type        = string
  default     = null

  validation {
    condition     = var.network == null ? true : can(regex("^projects/[^/]+/global/networks/[^/]+$", var.network))
    error_message = "network: a path such as projects/my-project/global/networks/my-network."
  }
}

variable "subnetwork" {
  description = "Subnetwork of `network` for instances. It needs Private Google Access or a Cloud NAT."
  type        = string
  default     = null

  validation {
    condition     = var.subnetwork == null ? true : can(regex("^projects/[^/]+/regions/[^/]+/subnetworks/[^/]+$", var.subnetwork))
    error_message = "subnetwork: a path such as projects/my-project/regions/us-central1/subnetworks/my-subnetwork."
  }
}

variable "cidr" {
  description = "Address range of a new network, which limits its number of instances."
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
  description = "Internet access of instances in a new network: `nat` (a Cloud NAT), `none` (only Google's services, by Private Google Access). No instance has an external address."
  type        = string
  default     = "nat"
  nullable    = false

  validation {
    condition     = contains(["nat", "none"], var.internet_access)
    error_message = "internet_access: nat or none."
  }
}

variable "egress_cidrs" {
  description = "Address ranges outside the network to which instances may open connections on port 443. Google's services are outside, too; 199.36.153.8/30 covers them if DNS resolves them to it."
  type        = set(string)
  default     = ["0.0.0.0/0"]
  nullable    = false

  validation {
    condition     = alltrue([for cidr in var.egress_cidrs : can(cidrnetmask(cidr))])
    error_message = "egress_cidrs: blocks of IPv4 addresses, such as 0.0.0.0/0."
  }
}

variable "controller_cidrs" {
  description = "Address ranges of a controller that runs outside the instances' subnetwork."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for cidr in var.controller_cidrs : can(cidrnetmask(cidr)) && !endswith(cidr, "/0")])
    error_message = "controller_cidrs: blocks of IPv4 addresses such as 10.1.2.3/32, but not 0.0.0.0/0."
  }
}

variable "kms_key" {
  description = "Key that encrypts the bucket and the event messages. The service agents of Cloud Storage and Pub/Sub must be allowed to use it. Null: Google's own key."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key == null ? true : can(regex("^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$", var.kms_key))
    error_message = "kms_key: a path such as projects/my-project/locations/us-central1/keyRings/my-ring/cryptoKeys/my-key."
  }
}

variable "disk_kms_key" {
  description = "Key that encrypts disks. The service agent of Compute Engine must be allowed to use it. Null: Google's own key."
  type        = string
  default     = null

  validation {
    condition     = var.disk_kms_key == null ? true : can(regex("^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$", var.disk_kms_key))
    error_message = "disk_kms_key: a path such as projects/my-project/locations/us-central1/keyRings/my-ring/cryptoKeys/my-key."
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

variable "datasets" {
  description = "Datasets that instances mount read-only before jobs start, by path: `{ \"/datasets/imagenet\" = \"gs://my-data/imagenet/\" }`. Images need `gcsfuse`. Buckets need uniform access, unless a whole bucket is mounted."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition = alltrue([for path in keys(var.datasets) :
      length(path) <= 80 && can(regex("^/datasets(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+$", path))
    ])
    error_message = "datasets: paths under /datasets/ of at most 80 characters, with letters, digits and _.- in their names, such as /datasets/imagenet."
  }

  validation {
    condition = alltrue([for path in keys(var.datasets) :
      alltrue([for other in keys(var.datasets) : !startswith(other, "${path}/")])
    ])
    error_message = "datasets: a path lies below another one, where nothing can be mounted: use separate paths."
  }

  validation {
    condition = alltrue([for place in values(var.datasets) :
      can(regex("^gs://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]/([A-Za-z0-9_][A-Za-z0-9_.=+-]*/)*$", place))
    ])
    error_message = "datasets: places that end in /, with letters, digits and _.=+- in their names, such as gs://my-data/imagenet/, or gs://my-data/ for a whole bucket."
  }
}

variable "foreign_buckets" {
  description = "Buckets of `datasets` that belong to other projects. This module grants no access to them: their owners must let the instances' account (`output service_accounts`) read and list."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for bucket in var.foreign_buckets : can(regex("^[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]$", bucket))])
    error_message = "foreign_buckets: names of buckets as in datasets, without gs://."
  }
}

variable "registries" {
  description = "Private repositories of Artifact Registry whose images jobs may use: `[\"us-docker.pkg.dev/my-project/team\"]`. The owner of another project's repository must let the instances' account (`output service_accounts`) read it."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for name in var.registries : can(regex("^[a-z0-9-]+-docker\\.pkg\\.dev/[a-z0-9.:-]+/[a-z0-9-]+$", name))])
    error_message = "registries: LOCATION-docker.pkg.dev/PROJECT/REPOSITORY, without image and tag, such as us-docker.pkg.dev/my-project/team."
  }
}

variable "sweep_schedule" {
  description = "When stopped instances of the deployment are deleted without a controller, as a cron expression in UTC. A lost controller leaves instances that stop themselves, and their disks are billed. Null: never, as in regions without Cloud Scheduler or Workflows."
  type        = string
  default     = "23 */6 * * *"

  validation {
    condition     = var.sweep_schedule == null ? true : can(regex("^[0-9*/,-]+( [0-9A-Za-z*/,-]+){4}$", var.sweep_schedule))
    error_message = "sweep_schedule: five fields of cron, such as 23 */6 * * * for every 6 hours, or null for never."
  }
}

variable "soft_delete_days" {
  description = "Days for which objects deleted from the bucket can be restored, and are billed: 0, or 7 to 90."
  type        = number
  default     = 0
  nullable    = false

  validation {
    condition     = var.soft_delete_days == 0 || (var.soft_delete_days >= 7 && var.soft_delete_days <= 90 && floor(var.soft_delete_days) == var.soft_delete_days)
    error_message = "soft_delete_days: 0, or a whole number from 7 to 90."
  }
}

variable "controller_principals" {
  description = "Members that may act as the controller's service account, for a controller that runs outside Compute Engine."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition = alltrue([for member in var.controller_principals :
      can(regex("^(user|group|serviceAccount):[^@:/]+@[^@:/]+$", member)) || can(regex("^(principal|principalSet)://iam.googleapis.com/.+$", member))
    ])
    error_message = "controller_principals: members such as user:me@example.com or principal://iam.googleapis.com/..., but not allUsers or allAuthenticatedUsers."
  }
}

variable "controller" {
  description = "Controller as a Compute Engine instance, or null for none. `zone` defaults to the first zone. `private_ip` defaults to the tenth address of the subnetwork. `disk_gb` is at least what the image needs. `state_gb` is the size of the state disk, which survives the instance. `shell` allows shells on it through Identity-Aware Proxy. `secrets_directory` is a directory on the host whose files jobs may name as secrets. `secret_variables` lists variables of `/etc/castor/secrets.env` that jobs may name. You write both on the host; Terraform never has a value."
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
  description = "Local directory that `make wheels` fills with Castor's wheel and the lists of pinned packages, which instances install at their start. Null: images contain Castor in /opt/castor."
  type        = string
  default     = null

  validation {
    condition     = var.wheels_directory == null ? true : length(fileset(var.wheels_directory, "castor_autoscaler-*.whl")) > 0
    error_message = "wheels_directory: a directory with castor_autoscaler-*.whl, as make wheels makes it."
  }

  validation {
    condition     = var.wheels_directory == null ? true : alltrue([for wheel in fileset(var.wheels_directory, "*.whl") : can(regex("^[A-Za-z0-9_.+!-]+$", wheel))])
    error_message = "wheels_directory: the directory has a file *.whl with an invalid wheel name."
  }
}

variable "prices_from" {
  description = "Price list on the controller's host, used instead of Google's prices. Google's prices can't be read without access to Cloud Billing."
  type        = string
  default     = null
}
