variable "deployment" {
  description = "Name of this deployment, unique in the account. Names and tags of all that is made have it, and IAM policies know its instances by it."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{0,23}$", var.deployment))
    error_message = "deployment: 1 to 24 lower-case letters, digits and hyphens, such as prod."
  }
}

variable "pools" {
  description = "Pools of instances by name: image, types, purchases, zones (all with a subnet unless given) and bounds. `boot` is how long a start takes before any was measured; `efa` needs types that have it; `placement_group` keeps a pool's instances close together and needs one zone."
  type = map(object({
    image_id         = string
    instance_types   = list(string)
    max_instances    = number
    max_usd_per_hour = number
    purchases        = optional(list(string), ["spot", "on-demand"])
    zones            = optional(list(string))
    boot             = optional(string, "3m")
    volume_gb        = optional(number, 200)
    efa              = optional(bool, false)
    placement_group  = optional(bool, false)
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
      length(pool.purchases) > 0 && length(setsubtract(pool.purchases, ["spot", "on-demand"])) == 0
    ])
    error_message = "pools.*.purchases: spot, on-demand or both."
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
      pool.volume_gb >= 8 && pool.volume_gb <= 16384 && floor(pool.volume_gb) == pool.volume_gb
    ])
    error_message = "pools.*.volume_gb: a whole number from 8 to 16384."
  }

  validation {
    condition     = alltrue([for pool in var.pools : pool.zones == null ? true : length(pool.zones) > 0])
    error_message = "pools.*.zones: at least one, or leave it out for all that have a subnet."
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

variable "volume_usd_per_gb_month" {
  description = "What a GB of gp3 costs a month in this region (the default is us-east-1's): the volume of an instance is part of its price."
  type        = number
  default     = 0.08
  nullable    = false

  validation {
    condition     = var.volume_usd_per_gb_month >= 0 && var.volume_usd_per_gb_month <= 10
    error_message = "volume_usd_per_gb_month: dollars from 0 to 10, such as 0.08."
  }
}

variable "address_usd_per_hour" {
  description = "What the public address of an instance costs an hour, as part of its price. Null: $0.005 where instances of a network of its own have one, and else nothing: given subnets that give instances one need it."
  type        = number
  default     = null

  validation {
    condition     = var.address_usd_per_hour == null ? true : var.address_usd_per_hour >= 0 && var.address_usd_per_hour <= 1
    error_message = "address_usd_per_hour: dollars from 0 to 1, such as 0.005."
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

variable "tags" {
  description = "Put on all that is made, by Terraform and by Castor. Keys can be read by instances of themselves, which allows neither spaces nor slashes in them."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition = length(var.tags) <= 40 && alltrue([for key, value in var.tags :
      can(regex("^[A-Za-z0-9+=.,_:@-]{1,128}$", key)) && can(regex("^[\\p{L}\\p{Z}\\p{N}_.:/=+@-]{0,256}$", value))
    ])
    error_message = "tags: at most 40; keys of letters, digits and +-=.,_:@ (at most 128), values of letters, digits, spaces and +-=._:/@ (at most 256)."
  }

  validation {
    condition = alltrue([for key in keys(var.tags) :
      !startswith(lower(key), "aws:") && !startswith(lower(key), "castor:") && !contains([".", "..", "_index"], key)
    ])
    error_message = "tags: keys that begin with aws: or castor: are reserved; so are ., .. and _index."
  }
}

variable "vpc_id" {
  description = "A network that is there already, in place of one of its own. It needs `subnets`, DNS support and DNS host names."
  type        = string
  default     = null

  validation {
    condition     = var.vpc_id == null ? true : can(regex("^vpc-[0-9a-f]{8,17}$", var.vpc_id))
    error_message = "vpc_id: the id of a VPC, such as vpc-0123456789abcdef0."
  }
}

variable "subnets" {
  description = "Subnets of `vpc_id` by zone: where instances may be."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition = alltrue([for zone, subnet in var.subnets :
      can(regex("^[a-z]{2,3}(-[a-z]+)+-[0-9]{1,2}[a-z]$", zone)) && can(regex("^subnet-[0-9a-f]{8,17}$", subnet))
    ])
    error_message = "subnets: zones with ids of subnets, such as { us-east-1a = \"subnet-0123456789abcdef0\" }."
  }
}

variable "route_table_ids" {
  description = "Route tables of `subnets` that get a gateway endpoint of S3, which costs nothing. Leave it empty where they have one."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for id in var.route_table_ids : can(regex("^rtb-[0-9a-f]{8,17}$", id))])
    error_message = "route_table_ids: ids of route tables, such as rtb-0123456789abcdef0."
  }
}

variable "vpc_cidr" {
  description = "Addresses of a network of its own: a block of /16 to /20, of which each zone gets a sixteenth."
  type        = string
  default     = "10.80.0.0/16"
  nullable    = false

  validation {
    condition = (
      can(cidrnetmask(var.vpc_cidr)) &&
      try(tonumber(split("/", var.vpc_cidr)[1]) >= 16 && tonumber(split("/", var.vpc_cidr)[1]) <= 20, false)
    )
    error_message = "vpc_cidr: a block of IPv4 addresses from /16 to /20, such as 10.80.0.0/16."
  }
}

variable "zones" {
  description = "Zones of a network of its own, a subnet each. Add new ones at the end: the place in the list decides the addresses."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition = (
      length(var.zones) <= 15 && length(distinct(var.zones)) == length(var.zones) &&
      alltrue([for zone in var.zones : can(regex("^[a-z]{2,3}(-[a-z]+)+-[0-9]{1,2}[a-z]$", zone))])
    )
    error_message = "zones: at most 15, each once, such as us-east-1a."
  }
}

variable "internet_access" {
  description = "How instances of a network of its own reach the internet: `public` (public addresses, which nothing outside can call; costs nothing while idle), `nat` (no public addresses; one NAT gateway in the first zone), `none` (endpoints of the services that Castor calls, and nothing else)."
  type        = string
  default     = "public"
  nullable    = false

  validation {
    condition     = contains(["public", "nat", "none"], var.internet_access)
    error_message = "internet_access: public, nat or none."
  }
}

variable "interface_endpoints" {
  description = "Services that get an interface endpoint in each subnet. Null: those that Castor calls where `internet_access` is none, else no service."
  type        = set(string)
  default     = null

  validation {
    condition = var.interface_endpoints == null ? true : alltrue([for service in var.interface_endpoints :
      can(regex("^[a-z0-9][a-z0-9.-]*$", service)) && service != "s3"
    ])
    error_message = "interface_endpoints: names of services such as ec2, sqs, ssm, sts, logs; S3 has a gateway endpoint."
  }
}

variable "egress_cidrs" {
  description = "Where instances may open connections to outside of the network, port 443. Null: anywhere, or nowhere where `internet_access` is none."
  type        = set(string)
  default     = null

  validation {
    condition     = var.egress_cidrs == null ? true : alltrue([for cidr in var.egress_cidrs : can(cidrnetmask(cidr))])
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

variable "kms_key_arn" {
  description = "The key that the bucket is encrypted with; its policy has to let this account's IAM policies decide. Null makes one."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null ? true : can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", var.kms_key_arn))
    error_message = "kms_key_arn: the ARN of a key, not of an alias."
  }
}

variable "volume_kms_key_arn" {
  description = "The key that volumes are encrypted with. Null is the account's default key for volumes. For spot, its policy also has to let AWSServiceRoleForEC2Spot use it."
  type        = string
  default     = null

  validation {
    condition     = var.volume_kms_key_arn == null ? true : can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", var.volume_kms_key_arn))
    error_message = "volume_kms_key_arn: the ARN of a key, not of an alias."
  }
}

variable "bucket_name" {
  description = "Name of the bucket. Null: castor-DEPLOYMENT-ACCOUNT-REGION."
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
  description = "Datasets that instances mount read-only before jobs start, by path: `{ \"/datasets/imagenet\" = \"s3://my-data/imagenet/\" }`. Images need `mount-s3`; a bucket of another account has to let the role of instances in."
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
      can(regex("^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/([A-Za-z0-9_][A-Za-z0-9_.=+-]*/)*$", place))
    ])
    error_message = "datasets: places that end in /, with letters, digits and _.=+- in their names, such as s3://my-data/imagenet/, or s3://my-data/ for a whole bucket."
  }
}

variable "dataset_kms_key_arns" {
  description = "The keys that buckets of `datasets` are encrypted with, so that instances may decrypt with them. The policy of each has to let this account's IAM policies decide; that of another account's key allows it to the role of instances."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.dataset_kms_key_arns : can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", arn))])
    error_message = "dataset_kms_key_arns: ARNs of keys, not of aliases."
  }
}

variable "permissions_boundary_arn" {
  description = "The permissions boundary of all roles."
  type        = string
  default     = null

  validation {
    condition     = var.permissions_boundary_arn == null ? true : can(regex("^arn:[a-z-]+:iam::([0-9]{12}|aws):policy/.+$", var.permissions_boundary_arn))
    error_message = "permissions_boundary_arn: the ARN of a policy."
  }
}

variable "iam_path" {
  description = "The path of all roles and of the instance profiles."
  type        = string
  default     = "/"
  nullable    = false

  validation {
    condition     = can(regex("^/([A-Za-z0-9+=,.@_-]+/)*$", var.iam_path))
    error_message = "iam_path: begins and ends with /, such as /castor/."
  }
}

variable "controller_principals" {
  description = "ARNs of roles and users that may assume the controller's role, for a controller that does not run on EC2."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.controller_principals : can(regex("^arn:[a-z-]+:(iam|sts)::[0-9]{12}:.+$", arn))])
    error_message = "controller_principals: ARNs of roles or users; everybody is nobody in particular."
  }
}

variable "controller_external_id" {
  description = "The external id that those of `controller_principals` have to name."
  type        = string
  default     = null

  validation {
    condition = var.controller_external_id == null ? true : (
      can(regex("^[A-Za-z0-9+=,.@:/_-]+$", var.controller_external_id)) &&
      length(var.controller_external_id) >= 2 && length(var.controller_external_id) <= 1224
    )
    error_message = "controller_external_id: 2 to 1224 letters, digits and +=,.@:/_-."
  }
}

variable "service_linked_roles" {
  description = "Whether to make the service-linked role of spot instances, which an account has once: false where spot was ever used."
  type        = bool
  default     = false
  nullable    = false
}

variable "controller" {
  description = "The controller as an instance of EC2, or null for none. `zone` is the first one unless given; `private_ip` is the tenth address of its subnet in a network of its own, and else whatever EC2 gives; `volume_gb` is no less than its image needs, `state_gb` the size of the volume that outlasts it; `session_manager` lets people open a shell on it through SSM. `secrets_directory` is a directory of the host whose files jobs may name as secrets, and `secret_variables` name variables of `/etc/castor/secrets.env` that they may: you write both there, Terraform never has a value."
  type = object({
    image_id          = string
    instance_type     = optional(string, "t3.medium")
    zone              = optional(string)
    private_ip        = optional(string)
    volume_gb         = optional(number, 100)
    state_gb          = optional(number, 20)
    session_manager   = optional(bool, true)
    secrets_directory = optional(string)
    secret_variables  = optional(list(string), [])
  })
  default = null

  validation {
    condition     = var.controller == null ? true : can(regex("^ami-[0-9a-f]{8,17}$", var.controller.image_id))
    error_message = "controller.image_id: the id of an image, such as ami-0123456789abcdef0."
  }

  validation {
    condition     = var.controller == null ? true : can(regex("^[a-z0-9-]+\\.[a-z0-9-]+$", var.controller.instance_type))
    error_message = "controller.instance_type: a type of EC2, such as t3.medium."
  }

  validation {
    condition     = var.controller == null ? true : try(var.controller.private_ip == null, true) || can(cidrnetmask("${var.controller.private_ip}/32"))
    error_message = "controller.private_ip: an IPv4 address of its subnet."
  }

  validation {
    condition = var.controller == null ? true : alltrue([for size in [var.controller.volume_gb, var.controller.state_gb] :
      size >= 1 && size <= 16384 && floor(size) == size
    ])
    error_message = "controller.volume_gb, controller.state_gb: whole numbers from 1 to 16384."
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

variable "identity_certificate" {
  description = "AWS's RSA-2048 certificate for instance identity documents of the region, as PEM: for a region that this release of Castor has none of."
  type        = string
  default     = null

  validation {
    condition     = var.identity_certificate == null || can(regex("-----BEGIN CERTIFICATE-----", var.identity_certificate))
    error_message = "identity_certificate: it begins with -----BEGIN CERTIFICATE-----."
  }
}

variable "prices_from" {
  description = "A price list on the controller's host, in place of AWS's own (docs/aws.md). Without internet AWS's can't be asked."
  type        = string
  default     = null
}
