variable "deployment" {
  description = "Name of the deployment, the same in all its modules."
  type        = string
  nullable    = false
}

variable "network" {
  description = "Network of the controller, in the region of the provider `aws`: `module.castor.network`."
  type = object({
    vpc_id       = string
    cidr         = string
    route_tables = map(string)
  })
  nullable = false
}

variable "other" {
  description = "Network in the region of the provider `aws.other`: output `network` of modules/network."
  type = object({
    region       = string
    vpc_id       = string
    cidr         = string
    route_tables = map(string)
  })
  nullable = false
}

variable "tags" {
  description = "Tags of the connection."
  type        = map(string)
  default     = {}
  nullable    = false
}
