variable "deployment" {
  description = "Name of this deployment, unique in the account. Names and tags of all resources contain it, and IAM policies recognise the deployment's instances by it."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{0,23}$", var.deployment))
    error_message = "deployment: 1 to 24 lower-case letters, digits and hyphens, such as prod."
  }
}

variable "pools" {
  description = "Pools of instances by name: image, types, purchases, zones (by default all with a subnet) and caps. `boot` is the assumed start time until one is measured. `boot_minutes` is the limit for joining, by default the module's. `volume_iops` and `volume_mibps` (MiB/s) are the speed of the volume, gp3, above whose free 3,000 and 125 each costs. `efa` needs types that support it. `network_cards` is the number of network cards with an EFA interface, which all types of the pool must have: p4d has 4, p5 32, p5en 16, p6-b200 8. Plans count their bandwidth only. With more than one, instances get no public address. `placement_group` places a pool's instances close together and needs one zone. A pool with `purchases = [\"reserved\"]` launches only into its `reservation`, the id of a capacity reservation, or of a Capacity Block with `capacity_block = true`; it has one type and one zone."
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

variable "tags" {
  description = "Tags of all resources that Terraform and Castor create. Instances can read the keys from their metadata, so keys may contain no spaces or slashes."
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
  description = "Existing network to use instead of a new one. It needs `subnets`, DNS support and DNS host names."
  type        = string
  default     = null

  validation {
    condition     = var.vpc_id == null ? true : can(regex("^vpc-[0-9a-f]{8,17}$", var.vpc_id))
    error_message = "vpc_id: the id of a VPC, such as vpc-0123456789abcdef0."
  }
}

variable "subnets" {
  description = "Subnets of `vpc_id` for instances, by zone."
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
  description = "Route tables of `subnets` that get a gateway endpoint of S3, which is free. Leave empty if they have one."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for id in var.route_table_ids : can(regex("^rtb-[0-9a-f]{8,17}$", id))])
    error_message = "route_table_ids: ids of route tables, such as rtb-0123456789abcdef0."
  }
}

variable "vpc_cidr" {
  description = "Address range of a new network, from /16 to /20; each zone gets a sixteenth."
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
  description = "Zones of a new network, with a subnet in each. Append new zones at the end: the position in the list determines the addresses."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition = (
      length(var.zones) <= 15 && length(distinct(var.zones)) == length(var.zones) &&
      alltrue([for zone in var.zones : can(regex("^[a-z]{2,3}(-[a-z]+)+-[0-9]{1,2}[a-z]$", zone))])
    )
    error_message = "zones: at most 15, and none twice, such as us-east-1a."
  }
}

variable "internet_access" {
  description = "Internet access of instances in a new network: `public` (public addresses that accept no connection from outside; free while idle), `nat` (no public addresses; one NAT gateway in the first zone), `none` (only endpoints of the services that Castor calls)."
  type        = string
  default     = "public"
  nullable    = false

  validation {
    condition     = contains(["public", "nat", "none"], var.internet_access)
    error_message = "internet_access: public, nat or none."
  }
}

variable "interface_endpoints" {
  description = "Services that get an interface endpoint in each subnet. Null: the services that Castor calls if `internet_access` is none, else none."
  type        = set(string)
  default     = null

  validation {
    condition = var.interface_endpoints == null ? true : alltrue([for service in var.interface_endpoints :
      can(regex("^[a-z0-9][a-z0-9.-]*$", service)) && service != "s3"
    ])
    error_message = "interface_endpoints: names of services such as ec2, sqs, ssm, sts; S3 has a gateway endpoint."
  }
}

variable "egress_cidrs" {
  description = "Address ranges outside the network to which instances may open connections on `egress_ports`, and the controller on port 443. Null: all, or none if `internet_access` is none."
  type        = set(string)
  default     = null

  validation {
    condition     = var.egress_cidrs == null ? true : alltrue([for cidr in var.egress_cidrs : can(cidrnetmask(cidr))])
    error_message = "egress_cidrs: blocks of IPv4 addresses, such as 0.0.0.0/0."
  }
}

variable "egress_ports" {
  description = "TCP ports in `egress_cidrs` to which instances may connect: 443 for AWS, packages and images; 80 for apt, 22 for git over SSH, 2049 for EFS, 988 for FSx for Lustre."
  type        = set(number)
  default     = [443]
  nullable    = false

  validation {
    condition     = contains(var.egress_ports, 443) && alltrue([for port in var.egress_ports : port >= 1 && port <= 65535 && floor(port) == port])
    error_message = "egress_ports: whole numbers from 1 to 65535, with 443."
  }
}

variable "kms_key_arn" {
  description = "Key that encrypts the bucket; its policy must delegate to IAM policies of this account. Null creates a key."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null ? true : can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", var.kms_key_arn))
    error_message = "kms_key_arn: the ARN of a key, not of an alias."
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

variable "bucket_name" {
  description = "Name of the bucket. Null: castor-DEPLOYMENT-ACCOUNT-REGION."
  type        = string
  default     = null

  validation {
    condition     = var.bucket_name == null ? true : can(regex("^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$", var.bucket_name))
    error_message = "bucket_name: 3 to 63 lower-case letters, digits and hyphens."
  }
}

variable "datasets" {
  description = "Datasets that instances mount read-only before jobs start, by path: `{ \"/datasets/imagenet\" = \"s3://my-data/imagenet/\" }`. Images need `mount-s3`. A bucket of another account must grant access to the instances' role."
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
      can(regex("^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/([A-Za-z0-9_][A-Za-z0-9_.=+-]*/)*$", place))
    ])
    error_message = "datasets: places that end in /, with letters, digits and _.=+- in their names, such as s3://my-data/imagenet/, or s3://my-data/ for a whole bucket."
  }
}

variable "dataset_kms_key_arns" {
  description = "Keys of buckets in `datasets`, which instances may then use to decrypt. The policy of each must delegate to IAM policies of this account; the key of another account must grant access to the instances' role."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.dataset_kms_key_arns : can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", arn))])
    error_message = "dataset_kms_key_arns: ARNs of keys, not of aliases."
  }
}

variable "registries" {
  description = "Private repositories of ECR whose images jobs may use, with all repositories below them: `[\"123456789012.dkr.ecr.us-east-1.amazonaws.com/team\"]`; a whole registry without a path. Another account's repository must let the instances' role read it."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition = alltrue([for name in var.registries :
      can(regex("^[0-9]{12}\\.dkr\\.ecr\\.[a-z0-9-]+\\.amazonaws\\.com(\\.cn)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$", name))
    ])
    error_message = "registries: hosts of ECR with or without a path, no tag and no slash at the end, such as 123456789012.dkr.ecr.us-east-1.amazonaws.com/team."
  }
}

variable "permissions_boundary_arn" {
  description = "Permissions boundary of all roles."
  type        = string
  default     = null

  validation {
    condition     = var.permissions_boundary_arn == null ? true : can(regex("^arn:[a-z-]+:iam::([0-9]{12}|aws):policy/.+$", var.permissions_boundary_arn))
    error_message = "permissions_boundary_arn: the ARN of a policy."
  }
}

variable "iam_path" {
  description = "Path of all roles and instance profiles."
  type        = string
  default     = "/"
  nullable    = false

  validation {
    condition     = can(regex("^/([A-Za-z0-9+=,.@_-]+/)*$", var.iam_path))
    error_message = "iam_path: begins and ends with /, such as /castor/."
  }
}

variable "controller_principals" {
  description = "ARNs of roles and users that may assume the controller's role, for a controller that runs outside EC2."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.controller_principals : can(regex("^arn:[a-z-]+:(iam|sts)::[0-9]{12}:.+$", arn))])
    error_message = "controller_principals: ARNs of roles or users, but not *."
  }
}

variable "controller_external_id" {
  description = "External id that `controller_principals` must state."
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
  description = "Whether to create the service-linked role of spot instances. An account has one; set false if the account has ever used spot."
  type        = bool
  default     = false
  nullable    = false
}

variable "controller" {
  description = "Controller as an EC2 instance, or null for none. `zone` defaults to the first zone. `private_ip` defaults to the tenth address of its subnet in a new network, else to an address that EC2 chooses. `volume_gb` is at least what the image needs. `state_gb` is the size of the state volume, which survives the instance. `session_manager` allows shells on it through SSM. `secrets_directory` is a directory on the host whose files jobs may name as secrets. `secret_variables` lists variables of `/etc/castor/secrets.env` that jobs may name. You write both on the host; Terraform never has a value."
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
  description = "Local directory that `make wheels` fills with Castor's wheel and the lists of pinned packages, which instances install at their start. Null: images contain Castor in /opt/castor."
  type        = string
  default     = null

  validation {
    condition     = var.wheels_directory == null ? true : length(fileset(var.wheels_directory, "castor_autoscaler-*.whl")) > 0
    error_message = "wheels_directory: a directory with castor_autoscaler-*.whl, as make wheels makes it."
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

variable "prices_from" {
  description = "Price list on the controller's host, used instead of AWS's list (docs/aws.md). AWS's list can't be read without internet access."
  type        = string
  default     = null
}
