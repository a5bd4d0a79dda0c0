# Image for instances of jobs on Compute Engine: Ubuntu's image with NVIDIA's driver, docker, and
# Castor with PyTorch in /opt/castor. `make image-gcp` builds it (docs/images.md). Never built so far.

packer {
  required_plugins {
    googlecompute = {
      source  = "github.com/hashicorp/googlecompute"
      version = ">= 1.1, < 2"
    }
  }
}

variable "project" {
  description = "Project of the image."
  type        = string
}

variable "zone" {
  description = "Zone in which the image is built."
  type        = string
}

variable "wheels" {
  description = "Directory that `make wheels` filled."
  type        = string
  default     = "dist"
}

variable "base" {
  description = "Family of the base image in ubuntu-os-accelerator-images, which has NVIDIA's driver."
  type        = string
  default     = "ubuntu-accelerator-2404-amd64-with-nvidia-580"
}

variable "machine_type" {
  description = "Type that builds the image. It needs no GPU."
  type        = string
  default     = "e2-standard-4"
}

variable "subnetwork" {
  description = "Subnetwork that accepts port 22 and has access to the internet. Null: the default network."
  type        = string
  default     = null
}

variable "disk_gb" {
  description = "Size of the image in GB, at least that of the base image. `disk_gb` of pools is at least as much."
  type        = number
  default     = 60
}

source "googlecompute" "castor" {
  image_name              = "castor-${formatdate("YYYYMMDD-hhmmss", timestamp())}"
  image_family            = "castor"
  image_description       = "Castor: instances of jobs"
  project_id              = var.project
  zone                    = var.zone
  source_image_family     = var.base
  source_image_project_id = ["ubuntu-os-accelerator-images"]
  machine_type            = var.machine_type
  subnetwork              = var.subnetwork
  disk_size               = var.disk_gb
  disk_type               = "pd-ssd"
  ssh_username            = "packer"

  # Nothing on the builder has credentials.
  disable_default_service_account = true
  metadata                        = { block-project-ssh-keys = "TRUE", enable-oslogin = "FALSE" }
}

build {
  sources = ["source.googlecompute.castor"]

  provisioner "shell" {
    inline = ["mkdir -m 0700 /tmp/castor-wheels"]
  }

  provisioner "file" {
    source      = "${var.wheels}/"
    destination = "/tmp/castor-wheels"
  }

  provisioner "shell" {
    script          = "${path.root}/prepare.sh"
    execute_command = "sudo bash {{ .Path }}"
  }
}
