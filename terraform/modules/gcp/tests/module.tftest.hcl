# Needs Terraform 1.7 or newer, or OpenTofu 1.8, for mock_provider; the module itself does not.

mock_provider "google" {
  mock_resource "google_compute_network" {
    defaults = { id = "projects/my-project/global/networks/castor-prod" }
  }
  mock_resource "google_compute_subnetwork" {
    defaults = { id = "projects/my-project/regions/us-central1/subnetworks/castor-prod" }
  }
  mock_data "google_compute_subnetwork" {
    defaults = { ip_cidr_range = "10.1.0.0/20" }
  }
  mock_resource "google_compute_resource_policy" {
    defaults = { id = "projects/my-project/regions/us-central1/resourcePolicies/castor-prod-near" }
  }
  mock_resource "google_compute_instance_template" {
    defaults = { id = "projects/my-project/global/instanceTemplates/castor-prod-gpu-spot-1" }
  }
  mock_resource "google_pubsub_topic" {
    defaults = { id = "projects/my-project/topics/castor-prod-events" }
  }
  mock_resource "google_pubsub_subscription" {
    defaults = { id = "projects/my-project/subscriptions/castor-prod-events" }
  }
  mock_resource "google_workflows_workflow" {
    defaults = { id = "projects/my-project/locations/us-central1/workflows/castor-prod-sweep" }
  }
  mock_resource "google_service_account" {
    defaults = { email = "castor@my-project.iam.gserviceaccount.com" }
  }
}

variables {
  deployment       = "prod"
  project          = "my-project"
  region           = "us-central1"
  zones            = ["us-central1-a", "us-central1-b"]
  max_usd_per_hour = 60
  fleet_usd        = "500"
  labels           = { team = "vision" }

  pools = {
    gpu = {
      image            = "projects/my-project/global/images/castor-7"
      machine_types    = ["n1-standard-8", "n1-standard-16"]
      accelerator      = { type = "nvidia-tesla-t4", count = 2 }
      max_instances    = 16
      max_usd_per_hour = 40
    }
    near = {
      image             = "projects/images/global/images/castor-8"
      machine_types     = ["a2-highgpu-1g"]
      purchases         = ["on-demand"]
      zones             = ["us-central1-b"]
      max_instances     = 2
      max_usd_per_hour  = 50
      max_run_hours     = 24
      boot_minutes      = 45
      secure_boot       = true
      compact_placement = true
    }
  }

  controller = { image = "projects/my-project/global/images/castor-7" }
}

run "ground" {
  assert {
    condition = alltrue([for template in google_compute_instance_template.pool : alltrue([
      template.scheduling[0].instance_termination_action == "DELETE",
      template.scheduling[0].max_run_duration[0].seconds > 0,
      !template.scheduling[0].automatic_restart,
      template.scheduling[0].on_host_maintenance == "TERMINATE",
      length(template.network_interface[0].access_config) == 0,
      template.metadata["block-project-ssh-keys"] == "TRUE",
      template.metadata["enable-oslogin"] == "TRUE",
      template.metadata["serial-port-enable"] == "FALSE",
      template.shielded_instance_config[0].enable_vtpm,
      template.shielded_instance_config[0].enable_integrity_monitoring,
      template.labels["castor-deployment"] == "prod",
      template.labels["team"] == "vision",
      template.service_account[0].scopes == tolist(["https://www.googleapis.com/auth/devstorage.read_only"]),
    ])])
    error_message = "Instances are deleted at last, have no address outside, no keys of the project, and say whose they are."
  }

  assert {
    condition = alltrue([
      google_compute_instance_template.pool["gpu/spot"].scheduling[0].provisioning_model == "SPOT",
      google_compute_instance_template.pool["gpu/spot"].scheduling[0].preemptible,
      google_compute_instance_template.pool["gpu/on-demand"].scheduling[0].provisioning_model == "STANDARD",
      !google_compute_instance_template.pool["gpu/on-demand"].scheduling[0].preemptible,
      google_compute_instance_template.pool["gpu/spot"].guest_accelerator[0].count == 2,
      length(google_compute_instance_template.pool["near/on-demand"].guest_accelerator) == 0,
      google_compute_instance_template.pool["near/on-demand"].scheduling[0].max_run_duration[0].seconds == 86400,
      length(google_compute_instance_template.pool) == 3,
    ])
    error_message = "Each purchase of a pool has a template of its own."
  }

  assert {
    condition = alltrue([
      length(google_compute_instance_template.pool["near/on-demand"].resource_policies) == 1,
      length(google_compute_instance_template.pool["gpu/spot"].resource_policies) == 0,
      google_compute_resource_policy.pool["near"].group_placement_policy[0].collocation == "COLLOCATED",
    ])
    error_message = "A pool is placed closely where that is asked for."
  }

  assert {
    condition = alltrue([for rule in google_compute_firewall.in :
      length(rule.target_service_accounts) > 0 && (rule.source_ranges == null || (
        rule.source_ranges == tolist(["35.235.240.0/20"]) && rule.allow[0].ports == tolist(["22"])
      ))
    ])
    error_message = "Agents and quorums are reached from inside only."
  }

  assert {
    condition = alltrue([
      !contains(keys(google_compute_firewall.in), "controller-from-clients"),
      google_compute_firewall.otherwise["in"].deny[0].protocol == "all",
      google_compute_firewall.otherwise["out"].deny[0].protocol == "all",
      alltrue([for rule in google_compute_firewall.in : rule.priority < google_compute_firewall.otherwise["in"].priority]),
      alltrue([for rule in google_compute_firewall.out : rule.priority < google_compute_firewall.otherwise["out"].priority]),
    ])
    error_message = "Nobody reaches the controller unless it was said who may."
  }

  assert {
    condition = alltrue([
      google_storage_bucket.this.uniform_bucket_level_access,
      google_storage_bucket.this.public_access_prevention == "enforced",
      length(google_storage_bucket.this.encryption) == 0,
      !google_storage_bucket.this.force_destroy,
      length(google_storage_bucket.this.lifecycle_rule) == 3,
      google_storage_bucket.this.soft_delete_policy[0].retention_duration_seconds == 0,
    ])
    error_message = "The bucket is private."
  }

  assert {
    condition     = length(google_compute_image_iam_member.controller) == 1 && length(google_compute_router_nat.this) == 1
    error_message = "Images of the project are granted one by one, and there is a way to the internet."
  }

  assert {
    condition = alltrue([
      !startswith(google_compute_instance.controller["this"].name, output.prefix),
      !contains(keys(google_compute_instance.controller["this"].labels), "castor-deployment"),
      google_compute_instance.controller["this"].zone == "us-central1-a",
      google_compute_address.controller["this"].address == "10.80.0.10",
      length(google_compute_instance.controller["this"].network_interface[0].access_config) == 0,
    ])
    error_message = "The controller may not be able to end itself, and has an address inside that stays."
  }

  assert {
    condition = alltrue([
      google_compute_disk.state["this"].create_snapshot_before_destroy,
      google_compute_disk_resource_policy_attachment.state["this"].disk == google_compute_disk.state["this"].name,
      google_compute_resource_policy.state["this"].snapshot_schedule_policy[0].retention_policy[0].on_source_disk_delete == "KEEP_AUTO_SNAPSHOTS",
    ])
    error_message = "The controller's state has a snapshot of each day, and one before it is deleted."
  }

  assert {
    condition     = output.pools_source == "gs://castor-prod-my-project/pools.json"
    error_message = "The pools are where Castor looks for them."
  }
}

run "refuses_a_controller_in_another_zone_than_its_state" {
  command = plan

  variables {
    controller = { image = "projects/my-project/global/images/castor-7", zone = "us-central1-b" }
  }

  expect_failures = [google_compute_instance.controller]
}

run "no_sweep" {
  command = plan

  variables {
    sweep_schedule = null
  }

  assert {
    condition = alltrue([
      length(google_workflows_workflow.sweep) == 0,
      length(google_cloud_scheduler_job.sweep) == 0,
      length(google_project_iam_member.sweep) == 0,
      !contains(output.services, "workflows.googleapis.com"),
      !contains(keys(output.roles), "sweep_delete"),
    ])
    error_message = "Without a sweep nobody may make one."
  }
}

run "services" {
  variables {
    enable_services = true
  }
}

run "closed_network" {
  command = plan

  variables {
    internet_access = "none"
    egress_cidrs    = ["199.36.153.8/30"]
  }

  assert {
    condition = alltrue([
      length(google_compute_router.this) == 0,
      length(google_compute_router_nat.this) == 0,
      google_compute_subnetwork.nodes[0].private_ip_google_access,
      google_compute_firewall.out["all-to-outside"].destination_ranges == tolist(["199.36.153.8/30"]),
    ])
    error_message = "Without internet Google's services alone are reached."
  }
}

run "controller_elsewhere" {
  variables {
    controller            = null
    controller_principals = ["user:me@example.com"]
    controller_cidrs      = ["10.9.0.4/32"]
    client_cidrs          = ["10.0.0.0/8"]
    kms_key               = "projects/keys/locations/us-central1/keyRings/ring/cryptoKeys/key"
  }

  assert {
    condition     = length(google_compute_instance.controller) == 0 && output.controller_address == null
    error_message = "There is no instance of the controller."
  }

  assert {
    condition = alltrue([
      length(google_service_account_iam_member.principals) == 1,
      contains(keys(google_compute_firewall.out), "nodes-to-controller"),
      contains(keys(google_compute_firewall.in), "controller-from-clients"),
      !contains(keys(google_compute_firewall.in), "controller-from-iap"),
      !contains(keys(google_compute_firewall.in), "nodes-from-iap"),
    ])
    error_message = "Who runs it may act as its account, and instances find it."
  }

  assert {
    condition     = google_storage_bucket.this.encryption[0].default_kms_key_name == var.kms_key && google_pubsub_topic.events.kms_key_name == var.kms_key
    error_message = "Bucket and messages have the given key."
  }
}

run "datasets" {
  variables {
    datasets = {
      "/datasets/imagenet" = "gs://my-data/vision/imagenet/"
      "/datasets/text/all" = "gs://texts/"
      "/datasets/theirs"   = "gs://their-data/theirs/"
    }
    foreign_buckets = ["their-data"]
  }

  assert {
    condition     = alltrue([for template in google_compute_instance_template.pool : strcontains(template.metadata["startup-script"], "\n/datasets/text/all gs://texts/\n")])
    error_message = "Instances of all pools are told of the datasets."
  }

  assert {
    condition     = alltrue([for grant in google_storage_bucket_iam_member.dataset : grant.member == local.members["node"]])
    error_message = "Instances read datasets, and nobody else."
  }
}

run "registries" {
  variables {
    enable_services = true
    registries      = ["us-docker.pkg.dev/my-project/team", "us-docker.pkg.dev/their-project/team"]
  }

  assert {
    condition = jsonencode({ for name, grant in google_artifact_registry_repository_iam_member.node : name => [grant.location, grant.repository, grant.member] }) == jsonencode({
      "us-docker.pkg.dev/my-project/team" = ["us", "team", local.members["node"]]
    })
    error_message = "Instances read the named repositories of this project; other projects grant it themselves."
  }

  assert {
    condition = alltrue([
      jsonencode(output.roles["pull"]) == jsonencode(["artifactregistry.repositories.downloadArtifacts"]),
      contains(output.services, "artifactregistry.googleapis.com"),
    ])
    error_message = "Instances may download images and nothing else."
  }

  assert {
    condition     = alltrue([for template in google_compute_instance_template.pool : strcontains(template.metadata["startup-script"], "\nregistries='us-docker.pkg.dev/my-project/team us-docker.pkg.dev/their-project/team'\n")])
    error_message = "Instances of all pools are told of the registries."
  }
}

run "several_regions" {
  variables {
    other_regions = {
      europe-west4 = { zones = ["europe-west4-a", "europe-west4-b"], cidr = "10.81.0.0/20", disk_usd_per_gb_month = { "pd-balanced" = 0.11 } }
    }
    pools = {
      gpu = {
        image            = "projects/my-project/global/images/castor-7"
        machine_types    = ["g2-standard-8"]
        max_instances    = 4
        max_usd_per_hour = 10
      }
      gpu-europe = {
        image             = "projects/my-project/global/images/castor-7"
        machine_types     = ["g2-standard-8"]
        region            = "europe-west4"
        zones             = ["europe-west4-a"]
        max_instances     = 4
        max_usd_per_hour  = 10
        compact_placement = true
      }
    }
  }

  assert {
    condition = alltrue([
      google_compute_subnetwork.other["europe-west4"].ip_cidr_range == "10.81.0.0/20",
      google_compute_subnetwork.other["europe-west4"].private_ip_google_access,
      google_compute_router_nat.other["europe-west4"].region == "europe-west4",
      google_compute_subnetwork_iam_member.other["europe-west4"].region == "europe-west4",
      google_compute_firewall.out["nodes-to-inside"].destination_ranges == tolist(["10.80.0.0/16", "10.81.0.0/20"]),
      google_compute_resource_policy.pool["gpu-europe"].region == "europe-west4",
    ])
    error_message = "Each region has a subnetwork with a way out, and instances reach the controller from there."
  }

  assert {
    condition = { for name, template in google_compute_instance_template.pool : name => template.region } == {
      "gpu/on-demand"        = "us-central1"
      "gpu/spot"             = "us-central1"
      "gpu-europe/on-demand" = "europe-west4"
      "gpu-europe/spot"      = "europe-west4"
    }
    error_message = "Templates are in the region of their pool."
  }
}

run "most_regions" {
  variables {
    other_regions = { for number, name in ["europe-west1", "europe-west4", "us-east1"] : name => {
      zones = ["${name}-b"]
      cidr  = "10.${81 + number}.0.0/16"
    } }
  }

  assert {
    condition     = length(google_compute_subnetwork.other) == 3
    error_message = "Three other regions are allowed."
  }
}

run "several_regions_of_an_existing_network" {
  command = plan

  variables {
    network       = "projects/host/global/networks/shared"
    subnetwork    = "projects/host/regions/us-central1/subnetworks/gpu"
    other_regions = { europe-west4 = { zones = ["europe-west4-a"], subnetwork = "projects/host/regions/europe-west4/subnetworks/gpu" } }
  }

  assert {
    condition = output.subnetworks == {
      us-central1  = "projects/host/regions/us-central1/subnetworks/gpu"
      europe-west4 = "projects/host/regions/europe-west4/subnetworks/gpu"
    } && google_compute_subnetwork_iam_member.other["europe-west4"].project == "host"
    error_message = "Each region uses its given subnetwork."
  }
}

run "refuses_a_subnetwork_of_another_region" {
  command = plan

  variables {
    network       = "projects/host/global/networks/shared"
    subnetwork    = "projects/host/regions/us-central1/subnetworks/gpu"
    other_regions = { europe-west4 = { zones = ["europe-west4-a"], subnetwork = "projects/host/regions/us-east1/subnetworks/gpu" } }
  }

  expect_failures = [data.google_compute_subnetwork.other]
}

run "refuses_ranges_that_overlap" {
  command = plan

  variables {
    other_regions = { europe-west4 = { zones = ["europe-west4-a"], cidr = "10.80.16.0/20" } }
  }

  expect_failures = [google_compute_subnetwork.other]
}

run "refuses_a_new_subnetwork_without_range" {
  command = plan

  variables {
    other_regions = { europe-west4 = { zones = ["europe-west4-a"] } }
  }

  expect_failures = [google_compute_subnetwork.other]
}

run "refuses_its_own_region_as_another" {
  command = plan

  variables {
    other_regions = { us-central1 = { zones = ["us-central1-c"], cidr = "10.81.0.0/20" } }
  }

  expect_failures = [google_compute_instance_template.pool]
}

run "refuses_a_pool_in_no_region" {
  command = plan

  variables {
    pools = {
      gpu = {
        image            = "projects/my-project/global/images/castor-7"
        machine_types    = ["g2-standard-8"]
        region           = "europe-west4"
        max_instances    = 4
        max_usd_per_hour = 10
      }
    }
  }

  expect_failures = [google_compute_instance_template.pool]
}

run "pools_without_placement" {
  command = plan

  variables {
    pools = {
      one = {
        image            = "projects/my-project/global/images/castor-7"
        machine_types    = ["g2-standard-8"]
        max_instances    = 1
        max_usd_per_hour = 1
      }
    }
  }

  assert {
    condition     = !contains(keys(output.roles), "placement") && !contains(keys(output.project_grants), "placement")
    error_message = "A role that nobody needs is not there."
  }
}

run "queued_capacity" {
  command = plan

  variables {
    pools = {
      big = {
        image            = "projects/my-project/global/images/castor-7"
        machine_types    = ["a3-highgpu-8g"]
        purchases        = ["flex-start", "on-demand"]
        max_instances    = 1
        max_usd_per_hour = 50
      }
    }
  }

  assert {
    condition = alltrue([
      google_compute_instance_template.pool["big/flex-start"].scheduling[0].provisioning_model == "FLEX_START",
      !google_compute_instance_template.pool["big/flex-start"].scheduling[0].preemptible,
      google_compute_instance_template.pool["big/flex-start"].scheduling[0].instance_termination_action == "DELETE",
      google_compute_instance_template.pool["big/flex-start"].scheduling[0].max_run_duration[0].seconds == 604800,
      google_compute_instance_template.pool["big/flex-start"].reservation_affinity[0].type == "NO_RESERVATION",
      length(google_compute_instance_template.pool["big/on-demand"].reservation_affinity) == 0,
    ])
    error_message = "What waits in the queue runs for a week at most, and takes nobody's reservation."
  }
}

run "reserved_capacity" {
  command = plan

  variables {
    pools = {
      own = {
        image            = "projects/my-project/global/images/castor-7"
        machine_types    = ["g2-standard-8"]
        purchases        = ["reserved"]
        reservation      = "my-l4"
        zones            = ["us-central1-a"]
        max_instances    = 4
        max_usd_per_hour = 1
      }
      bound = {
        image             = "projects/my-project/global/images/castor-7"
        machine_types     = ["a4x-highgpu-4g"]
        purchases         = ["reserved"]
        reservation       = "my-gb200"
        reservation_bound = true
        zones             = ["us-central1-a"]
        max_instances     = 2
        max_usd_per_hour  = 1
        disk_type         = "hyperdisk-balanced"
      }
    }
  }

  assert {
    condition = alltrue([for name, reservation in { own = "my-l4", bound = "my-gb200" } : alltrue([
      google_compute_instance_template.pool["${name}/reserved"].reservation_affinity[0].type == "SPECIFIC_RESERVATION",
      google_compute_instance_template.pool["${name}/reserved"].reservation_affinity[0].specific_reservation[0].key == "compute.googleapis.com/reservation-name",
      google_compute_instance_template.pool["${name}/reserved"].reservation_affinity[0].specific_reservation[0].values == tolist([reservation]),
      length(google_compute_instance_template.pool["${name}/reserved"].scheduling[0].max_run_duration) == 0,
    ])])
    error_message = "A reserved pool launches into its reservation and nowhere else, for as long as that lasts."
  }

  assert {
    condition = alltrue([
      google_compute_instance_template.pool["own/reserved"].scheduling[0].provisioning_model == "STANDARD",
      google_compute_instance_template.pool["own/reserved"].scheduling[0].instance_termination_action == null,
      google_compute_instance_template.pool["bound/reserved"].scheduling[0].provisioning_model == "RESERVATION_BOUND",
      google_compute_instance_template.pool["bound/reserved"].scheduling[0].instance_termination_action == "DELETE",
    ])
    error_message = "Bound instances are deleted at the end of their reservation."
  }
}

run "refuses_a_reservation_without_its_purchase" {
  command = plan

  variables {
    pools = {
      own = {
        image            = "projects/my-project/global/images/castor-7"
        machine_types    = ["g2-standard-8"]
        reservation      = "my-l4"
        zones            = ["us-central1-a"]
        max_instances    = 4
        max_usd_per_hour = 1
      }
    }
  }

  expect_failures = [var.pools]
}

run "refuses_more_than_a_week_on_flex_start" {
  command = plan

  variables {
    pools = {
      big = {
        image            = "projects/my-project/global/images/castor-7"
        machine_types    = ["a3-highgpu-8g"]
        purchases        = ["flex-start"]
        max_instances    = 1
        max_usd_per_hour = 50
        max_run_hours    = 169
      }
    }
  }

  expect_failures = [var.pools]
}

run "example_several_regions" {
  command = plan

  module {
    source = "./examples/several-regions"
  }

  variables {
    project = "my-project"
    image   = "projects/my-project/global/images/castor-7"
  }
}

run "example_minimal" {
  command = plan

  module {
    source = "./examples/minimal"
  }

  variables {
    project = "my-project"
    image   = "projects/my-project/global/images/castor-7"
  }
}

run "example_given_network" {
  command = plan

  module {
    source = "./examples/given-network"
  }

  variables {
    project    = "my-project"
    network    = "projects/shared/global/networks/inner"
    subnetwork = "projects/shared/regions/europe-west4/subnetworks/inner"
    image      = "projects/my-project/global/images/castor-7"
    kms_key    = "projects/keys/locations/europe-west4/keyRings/ring/cryptoKeys/key"
  }
}

run "refuses_what_can_not_be" {
  command = plan

  variables {
    deployment            = "prod-eu"
    project               = "123"
    region                = "us-central1-a"
    zones                 = ["us-central1"]
    other_regions         = { europe-west4 = { zones = ["us-east1-b"], cidr = "10.81.0.0" } }
    max_usd_per_hour      = 0
    fleet_usd             = "0"
    job_usd               = "many"
    study_usd             = "-1"
    lease                 = "2d"
    policy                = "marginal; true"
    launches_per_minute   = 0
    disk_usd_per_gb_month = { "ssd" = 1 }
    labels                = { "castor-job" = "1" }
    network               = "default"
    subnetwork            = "default"
    cidr                  = "10.0.0.0/28"
    internet_access       = "all"
    egress_cidrs          = ["everywhere"]
    client_cidrs          = ["0.0.0.0/0"]
    controller_cidrs      = ["0.0.0.0/0"]
    kms_key               = "key"
    disk_kms_key          = "key"
    bucket_name           = "Castor"
    lifecycle_days        = { "user-data/" = 3 }
    datasets              = { "/datasets/../etc" = "gs://my-data" }
    foreign_buckets       = ["gs://my-data"]
    registries            = ["gcr.io/my-project"]
    soft_delete_days      = 3
    controller_principals = ["allUsers"]
    wheels_directory      = "./examples"
    python                = "python3; true"
    sweep_schedule        = "hourly"
    boot_minutes          = 1
    controller            = { image = "family/ubuntu", machine_type = "large", private_ip = "here", state_gb = 0.5 }
    pools = {
      GPU = {
        image            = "family/ubuntu"
        machine_types    = []
        accelerator      = { type = "t4", count = 3 }
        purchases        = ["reserved"]
        zones            = []
        max_instances    = 0
        max_usd_per_hour = 0
        boot             = "soon"
        max_run_hours    = 0
        disk_gb          = 1
        disk_type        = "ssd"
        nic_type         = "fast"
      }
    }
  }

  expect_failures = [
    var.deployment, var.project, var.region, var.zones, var.other_regions, var.max_usd_per_hour,
    var.fleet_usd, var.job_usd, var.study_usd, var.lease, var.policy, var.launches_per_minute, var.disk_usd_per_gb_month, var.labels, var.network, var.subnetwork, var.cidr,
    var.internet_access, var.egress_cidrs, var.client_cidrs, var.controller_cidrs, var.kms_key,
    var.disk_kms_key, var.bucket_name, var.lifecycle_days, var.soft_delete_days,
    var.controller_principals, var.datasets, var.foreign_buckets, var.registries,
    var.wheels_directory, var.python, var.sweep_schedule, var.boot_minutes, var.controller, var.pools,
  ]
}

run "refuses_packages_without_pins" {
  command = plan

  variables {
    wheels_directory = "./tests/unpinned"
  }

  expect_failures = [google_compute_instance_template.pool]
}

run "refuses_bounds_that_do_not_fit" {
  command = plan

  variables {
    max_usd_per_hour = 45
  }

  expect_failures = [google_compute_instance_template.pool]
}

run "refuses_what_google_does_not_sell" {
  command = plan

  variables {
    pools = {
      big = {
        image            = "projects/my-project/global/images/castor-7"
        machine_types    = ["a3-ultragpu-8g", "a3-highgpu-1g"]
        disk_type        = "hyperdisk-balanced"
        max_instances    = 1
        max_usd_per_hour = 50
      }
    }
  }

  expect_failures = [google_compute_instance_template.pool]
}

run "takes_a_disk_that_fits" {
  command = plan

  variables {
    pools = {
      big = {
        image            = "projects/my-project/global/images/castor-7"
        machine_types    = ["a3-ultragpu-8g", "x9-new-8g"]
        purchases        = ["spot"]
        disk_type        = "hyperdisk-balanced"
        max_instances    = 1
        max_usd_per_hour = 50
      }
    }
  }

  assert {
    condition = alltrue([
      google_compute_instance_template.pool["big/spot"].disk[0].provisioned_iops == 3000,
      google_compute_instance_template.pool["big/spot"].disk[0].provisioned_throughput == 140,
    ])
    error_message = "No more of a disk is provisioned than its price by the GB includes."
  }
}

run "refuses_a_disk_that_does_not_fit" {
  command = plan

  variables {
    pools = {
      big = {
        image            = "projects/my-project/global/images/castor-7"
        machine_types    = ["g2-standard-8", "a3-ultragpu-8g"]
        purchases        = ["spot"]
        max_instances    = 1
        max_usd_per_hour = 50
      }
    }
  }

  expect_failures = [google_compute_instance_template.pool]
}

run "refuses_a_zone_that_is_not_there" {
  command = plan

  variables {
    zones = ["us-central1-a"]
  }

  expect_failures = [google_compute_instance_template.pool]
}

run "refuses_a_zone_of_another_region" {
  command = plan

  variables {
    zones = ["us-central1-a", "us-central1-b", "europe-west4-a"]
  }

  expect_failures = [google_compute_instance_template.pool]
}

run "refuses_a_dataset_that_is_not_under_datasets" {
  command = plan

  variables {
    datasets = { "/home/imagenet" = "gs://my-data/imagenet/" }
  }

  expect_failures = [var.datasets]
}

run "refuses_a_dataset_under_another" {
  command = plan

  variables {
    datasets = { "/datasets/a" = "gs://my-data/a/", "/datasets/a/b" = "gs://my-data/b/" }
  }

  expect_failures = [var.datasets]
}

run "refuses_a_place_that_ends_a_text" {
  command = plan

  variables {
    datasets = { "/datasets/a" = "gs://my-data/a\") || (true/" }
  }

  expect_failures = [var.datasets]
}

run "refuses_datasets_in_its_own_bucket" {
  command = plan

  variables {
    datasets = { "/datasets/a" = "gs://castor-prod-my-project/user-data/" }
  }

  expect_failures = [google_compute_instance_template.pool]
}

run "refuses_a_foreign_bucket_without_dataset" {
  command = plan

  variables {
    datasets        = { "/datasets/a" = "gs://my-data/a/" }
    foreign_buckets = ["their-data"]
  }

  expect_failures = [google_compute_instance_template.pool]
}

run "refuses_a_network_without_subnetwork" {
  command = plan

  variables {
    network = "projects/shared/global/networks/inner"
  }

  expect_failures = [data.google_compute_subnetwork.given]
}

run "refuses_a_placement_in_two_zones" {
  command = plan

  variables {
    pools = {
      near = {
        image             = "projects/my-project/global/images/castor-7"
        machine_types     = ["a2-highgpu-1g"]
        max_instances     = 2
        max_usd_per_hour  = 50
        compact_placement = true
      }
    }
  }

  expect_failures = [google_compute_resource_policy.pool]
}

run "refuses_a_controller_that_nobody_runs" {
  command = plan

  variables {
    controller = null
  }

  expect_failures = [google_service_account.this]
}
