variable "shared" {
  description = "Facts that all regions share: those of modules/pools. `region` is the controller's."
  type = object({
    deployment       = string
    account          = string
    partition        = string
    tags             = map(string)
    region           = string
    bucket           = string
    python           = string
    has_wheels       = bool
    package_index    = bool
    max_usd_per_hour = number
    sweep            = optional(object({ max_run_hours = number }))
  })
  nullable = false
}

variable "network" {
  description = "Network of the controller: output `network` of modules/network."
  type = object({
    subnets         = map(string)
    subnet_cidrs    = map(string)
    first_zone      = string
    security_groups = map(string)
    has_internet    = bool
  })
  nullable = false
}

variable "regions" {
  description = "Regions with pools, the controller's first: outputs `region` of modules/pools."
  type        = any
  nullable    = false
}

variable "given_tags" {
  description = "Tags of what the controller launches, in addition to Castor's own."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "serve_options" {
  description = "Options of `castor serve` on the host, such as `--fleet-usd 500`."
  type        = string
  nullable    = false
}

variable "launches_per_minute" {
  description = "Maximum number of launches per minute of all pools together."
  type        = number
  default     = 60
  nullable    = false
}

variable "prices_from" {
  description = "Price list on the controller's host, used instead of AWS's list."
  type        = string
  default     = null
}

variable "bucket_arn" {
  description = "Bucket of start data and of jobs' files."
  type        = string
  nullable    = false
}

variable "bucket_kms_key_arn" {
  description = "Key of the bucket."
  type        = string
  nullable    = false
}

variable "node_role_arn" {
  description = "Role of instances, which the controller passes to EC2."
  type        = string
  nullable    = false
}

variable "job_role_arn" {
  description = "Role that the controller assumes to grant a job access to its files."
  type        = string
  nullable    = false
}

variable "additional_statements" {
  description = "Statements of IAM that the controller's role has in addition to Castor's own."
  type        = any
  default     = []
  nullable    = false
}

variable "existing_role" {
  description = "Existing role of the controller, to use instead of a new one, and the instance profile of its host. It needs the output `policies`."
  type = object({
    arn              = string
    instance_profile = optional(string)
  })
  default = null
}

variable "permissions_boundary_arn" {
  description = "Permissions boundary of all roles."
  type        = string
  default     = null
}

variable "iam_path" {
  description = "Path of all roles and instance profiles."
  type        = string
  default     = "/"
  nullable    = false
}

variable "volume_kms_key_arn" {
  description = "Key that encrypts the host's volumes. Null: the account's default key for volumes."
  type        = string
  default     = null
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
    condition = var.controller == null ? true : (
      var.controller.state_snapshots >= 0 && var.controller.state_snapshots <= 1000 && floor(var.controller.state_snapshots) == var.controller.state_snapshots
    )
    error_message = "controller.state_snapshots: a whole number from 0 to 1000."
  }

  validation {
    condition     = var.controller == null ? true : can(regex("^snap-[0-9a-f]{8,17}$", coalesce(var.controller.state_snapshot_id, "snap-00000000")))
    error_message = "controller.state_snapshot_id: the id of a snapshot, such as snap-0123456789abcdef0."
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
