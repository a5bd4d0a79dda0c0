variable "deployment" {
  description = "Name of the deployment, the same in all its modules."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{0,23}$", var.deployment))
    error_message = "deployment: 1 to 24 lower-case letters, digits and hyphens, such as prod."
  }
}

variable "tags" {
  description = "Tags of all resources."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "vpc_id" {
  description = "Existing network to use instead of a new one, with `subnets`. It needs DNS support and DNS host names."
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
  description = "Route tables of `subnets` that get a gateway endpoint of S3, which is free, and routes to other regions. Leave empty if they have both."
  type        = list(string)
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

variable "services" {
  description = "Services that instances and the controller call, and a network without internet access so has endpoints of."
  type        = set(string)
  default     = ["ec2", "sqs", "ssm", "sts"]
  nullable    = false
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

variable "controller_cidrs" {
  description = "Address ranges of the controller, if another network has it: `[module.castor.network.cidr]`. Instances then reach it there, and this network has no security group for it."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for cidr in var.controller_cidrs : can(cidrnetmask(cidr))])
    error_message = "controller_cidrs: blocks of IPv4 addresses, such as 10.80.0.0/16."
  }
}

variable "remote_cidrs" {
  description = "Address ranges of instances in other networks that reach the controller in this one, by region."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "existing_security_groups" {
  description = "Existing security groups to use instead of new ones, without any rule of Castor's: `nodes`, of instances, and `controller`."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition = alltrue([for part, id in var.existing_security_groups :
      contains(["nodes", "controller"], part) && can(regex("^sg-[0-9a-f]{8,17}$", id))
    ])
    error_message = "existing_security_groups: nodes, controller or both, with ids such as sg-0123456789abcdef0."
  }
}
