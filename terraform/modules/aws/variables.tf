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
}

variable "volume_usd_per_gb_month" {
  description = "Price of a GB of gp3 per month in this region, in US dollars; the default is that of us-east-1. An instance's price includes its volume."
  type        = number
  default     = 0.08
  nullable    = false
}

variable "volume_usd_per_iops_month" {
  description = "Price of each IOPS of gp3 above 3,000 per month in this region, in US dollars; the default is that of us-east-1."
  type        = number
  default     = 0.005
  nullable    = false
}

variable "volume_usd_per_mibps_month" {
  description = "Price of each MiB/s of gp3 above 125 per month in this region, in US dollars; the default is that of us-east-1."
  type        = number
  default     = 0.04
  nullable    = false
}

variable "address_usd_per_hour" {
  description = "Price of an instance's public address per hour, in US dollars; an instance's price includes it. Null: $0.005 if the module's own network gives instances public addresses, else 0. Set it if given subnets do."
  type        = number
  default     = null
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
  description = "Existing network to use instead of a new one, with `subnets`. It needs DNS support and DNS host names."
  type        = string
  default     = null
}

variable "subnets" {
  description = "Subnets of `vpc_id` for instances, by zone."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "route_table_ids" {
  description = "Route tables of `subnets` that get a gateway endpoint of S3, which is free, and routes to other regions. Leave empty if they have both."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "vpc_cidr" {
  description = "Address range of a new network, from /16 to /20; each zone gets a sixteenth."
  type        = string
  default     = "10.80.0.0/16"
  nullable    = false
}

variable "zones" {
  description = "Zones of a new network, with a subnet in each. Append new zones at the end: the position in the list determines the addresses."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "internet_access" {
  description = "Internet access of instances in a new network: `public` (public addresses that accept no connection from outside; free while idle), `nat` (no public addresses; one NAT gateway in the first zone), `none` (only endpoints of the services that Castor calls)."
  type        = string
  default     = "public"
  nullable    = false
}

variable "interface_endpoints" {
  description = "Services that get an interface endpoint in each subnet. Null: the services that Castor calls if `internet_access` is none, else none."
  type        = set(string)
  default     = null
}

variable "egress_cidrs" {
  description = "Address ranges outside the network to which instances may open connections on `egress_ports`, and the controller on port 443. Null: all, or none if `internet_access` is none."
  type        = set(string)
  default     = null
}

variable "egress_ports" {
  description = "TCP ports in `egress_cidrs` to which instances may connect: 443 for AWS, packages and images; 80 for apt, 22 for git over SSH, 2049 for EFS, 988 for FSx for Lustre."
  type        = set(number)
  default     = [443]
  nullable    = false
}

variable "existing_security_groups" {
  description = "Existing security groups to use instead of new ones, without any rule of Castor's: `nodes`, of instances, and `controller`."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "additional_security_group_ids" {
  description = "Security groups of all instances, in addition to Castor's."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "other_regions" {
  description = "Other regions with pools: outputs `region` of modules/pools, each called with that region's provider."
  type        = any
  default     = []
  nullable    = false

  validation {
    condition = can([for region in var.other_regions : [region.name, region.cidr, region.settings, region.pools, region.queue_arn]]) && try(
      length(distinct(var.other_regions[*].name)) == length(var.other_regions), true
    )
    error_message = "other_regions: outputs of modules/pools, each region once, such as [module.west.region]."
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

variable "create_kms_key" {
  description = "Whether to create the bucket's key. Null: only without `kms_key_arn`. Set false if Terraform creates that key in the same configuration, where nobody knows its ARN before."
  type        = bool
  default     = null
}

variable "volume_kms_key_arn" {
  description = "Key that encrypts volumes. Null: the account's default key for volumes. For spot, its policy must also allow AWSServiceRoleForEC2Spot to use it."
  type        = string
  default     = null
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

variable "existing_roles" {
  description = "Existing roles to use instead of new ones. Each needs the permissions of its output: `node` of `node_policy`, `controller` of `controller_policies`, `job` of `job_policy`, `sweep` of `sweep_policy`; `scheduler.amazonaws.com` and `states.amazonaws.com` assume it. `instance_profile_arn` is that of instances, `instance_profile` the name of that of the controller's host."
  type = object({
    node       = optional(object({ arn = string, instance_profile_arn = string }))
    controller = optional(object({ arn = string, instance_profile = optional(string) }))
    job        = optional(object({ arn = string }))
    sweep      = optional(object({ arn = string }))
  })
  default  = {}
  nullable = false

  validation {
    condition = alltrue([for role in [var.existing_roles.node, var.existing_roles.controller, var.existing_roles.job, var.existing_roles.sweep] :
      can(regex("^arn:[a-z-]+:iam::[0-9]{12}:role/.+$", role.arn)) if role != null
    ])
    error_message = "existing_roles: ARNs of roles, such as arn:aws:iam::123456789012:role/castor-node."
  }
}

variable "node_role_policies" {
  description = "ARNs of policies that the new role of instances has in addition, by names of your choice. Jobs can't use the role."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for arn in values(var.node_role_policies) : can(regex("^arn:[a-z-]+:iam::([0-9]{12}|aws):policy/.+$", arn))])
    error_message = "node_role_policies: ARNs of policies, such as { logs = \"arn:aws:iam::aws:policy/CloudWatchAgentServerPolicy\" }."
  }
}

variable "controller_principals" {
  description = "ARNs of roles and users that may assume the controller's role, for a controller that runs outside EC2."
  type        = set(string)
  default     = []
  nullable    = false
}

variable "controller_external_id" {
  description = "External id that `controller_principals` must state."
  type        = string
  default     = null
}

variable "service_linked_roles" {
  description = "Whether to create the service-linked role of spot instances. An account has one; set false if the account has ever used spot."
  type        = bool
  default     = false
  nullable    = false
}

variable "controller" {
  description = "Controller as an EC2 instance, or null for none. `zone` defaults to the first zone. `private_ip` defaults to the tenth address of its subnet in a new network, else to an address that EC2 chooses. `volume_gb` is at least what the image needs. `state_gb` is the size of the state volume, which survives the instance. `state_snapshots` is the number of its daily snapshots that are kept, 0 for none. `state_snapshot_id` is the snapshot of which a new state volume is made. `session_manager` allows shells on it through SSM. `secrets_directory` is a directory on the host whose files jobs may name as secrets. `secret_variables` lists variables of `/etc/castor/secrets.env` that jobs may name. You write both on the host; Terraform never has a value."
  type = object({
    image_id          = string
    instance_type     = optional(string, "t3.medium")
    zone              = optional(string)
    private_ip        = optional(string)
    volume_gb         = optional(number, 100)
    state_gb          = optional(number, 20)
    state_snapshots   = optional(number, 7)
    state_snapshot_id = optional(string)
    session_manager   = optional(bool, true)
    secrets_directory = optional(string)
    secret_variables  = optional(list(string), [])
  })
  default = null
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

variable "sweep_schedule" {
  description = "When left-over instances of each region are ended without a controller, as an expression of EventBridge Scheduler, with cron in UTC: instances that stopped, whose volumes are billed, and those that ran longer than `max_run_hours`. It needs a role, which the module creates unless `existing_roles` has `sweep`. Null: never."
  type        = string
  default     = "rate(6 hours)"

  validation {
    condition     = var.sweep_schedule == null ? true : can(regex("^(rate\\([1-9][0-9]* (minute|hour|day)s?\\)|cron\\([^ ()]+( [^ ()]+){5}\\))$", var.sweep_schedule))
    error_message = "sweep_schedule: an expression such as rate(6 hours) or cron(23 3 * * ? *), or null for never."
  }
}

variable "max_run_hours" {
  description = "Hours after its launch after which the sweep ends a running instance, whether or not its agent answers. Instances in a capacity reservation run on. Jobs continue on other instances. Null: never."
  type        = number
  default     = 168

  validation {
    condition     = var.max_run_hours == null ? true : var.max_run_hours >= 1 && var.max_run_hours <= 8760 && floor(var.max_run_hours) == var.max_run_hours
    error_message = "max_run_hours: a whole number from 1 to 8760, or null for never."
  }
}

variable "identity_certificate" {
  description = "AWS's RSA-2048 certificate for the region's instance identity documents, as PEM, if this release of Castor does not include one."
  type        = string
  default     = null
}

variable "prices_from" {
  description = "Price list on the controller's host, used instead of AWS's list (docs/aws.md). AWS's list can't be read without internet access."
  type        = string
  default     = null
}
