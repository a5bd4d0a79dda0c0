locals {
  accounts = merge(
    {
      node       = "what an instance may do: find out who it is, and read datasets"
      controller = "buys instances, and gives them back"
      job        = "what jobs may do with their files; the controller hands on parts of it"
    },
    var.sweep_schedule == null ? {} : { sweep = "deletes stopped instances, without a controller" },
  )

  # Custom roles of this deployment, since Google's roles have more permissions than needed.
  roles = merge(
    {
      launch = [
        "compute.disks.create",
        "compute.disks.setLabels",
        "compute.instances.create",
        "compute.instances.delete",
        "compute.instances.get",
        "compute.instances.getSerialPortOutput",
        "compute.instances.setLabels",
        "compute.instances.setMetadata",
        "compute.instances.setServiceAccount",
      ]
      look = [
        "compute.acceleratorTypes.list",
        "compute.instances.list",
        "compute.machineTypes.get",
        "compute.machineTypes.list",
        "compute.projects.get",
        "compute.regions.get",
        "compute.reservations.get",
        "compute.zoneOperations.get",
        "compute.zoneOperations.list",
        "compute.zones.list",
      ]
      template    = ["compute.instanceTemplates.get", "compute.instanceTemplates.useReadOnly"]
      image       = ["compute.images.useReadOnly"]
      subnetwork  = ["compute.subnetworks.use"]
      act         = ["iam.serviceAccounts.actAs"]
      impersonate = ["iam.serviceAccounts.getAccessToken"]
      hear        = ["pubsub.subscriptions.consume"]
      read        = ["storage.objects.get"]
      list        = ["storage.objects.list"]
      # Large objects are uploaded in parts, which need separate permissions.
      write = [
        "storage.multipartUploads.abort",
        "storage.multipartUploads.create",
        "storage.objects.create",
        "storage.objects.delete",
      ]
    },
    length(google_compute_resource_policy.pool) == 0 ? {} : { placement = ["compute.resourcePolicies.use"] },
    length(var.registries) == 0 ? {} : { pull = ["artifactregistry.repositories.downloadArtifacts"] },
    var.sweep_schedule == null ? {} : {
      sweep_look   = ["compute.instances.list", "logging.logEntries.create"]
      sweep_delete = ["compute.instances.delete"]
      sweep_start  = ["workflows.executions.create"]
    },
  )

  # IAM checks the name of an instance, and of its disk, which is the same. A condition has at most
  # 12 operators, hence 4 regions.
  in_regions = [for name in concat([var.region], keys(var.other_regions)) :
    "resource.name.extract(\"/zones/{zone}/\").startsWith(\"${name}-\")"
  ]
  launch_conditions = [for type, kind in { Disk = "disks", Instance = "instances" } : join(" && ", [
    "resource.type == \"compute.googleapis.com/${type}\"",
    length(local.in_regions) == 1 ? local.in_regions[0] : "(${join(" || ", local.in_regions)})",
    "resource.name.extract(\"/${kind}/{name}\").startsWith(\"${local.prefix}\")",
  ])]
  launch_condition = format("(%s) || (%s)", local.launch_conditions...)

  # Grants in the whole project: role and condition.
  project_grants = merge(
    {
      launch = local.launch_condition
      look   = null
    },
    { for role in keys(local.roles) : role => null if role == "placement" },
  )

  objects = "projects/_/buckets/${local.bucket_name}/objects"
  under   = { for folder in [local.parcels, local.jobs, local.bundles, "wheels"] : folder => "resource.name.startsWith(\"${local.objects}/${folder}/\")" }
  lists   = { for folder in [local.jobs, local.bundles] : folder => "api.getAttribute(\"storage.googleapis.com/objectListPrefix\", \"\").startsWith(\"${folder}/\")" }

  # Grants in the bucket, each with a condition.
  bucket_grants = {
    node-reads-who-it-is       = { account = "node", role = "read", condition = local.under[local.parcels] }
    node-reads-wheels          = { account = "node", role = "read", condition = local.under["wheels"] }
    controller-tells-instances = { account = "controller", role = "write", condition = local.under[local.parcels] }
    controller-reads-wheels    = { account = "controller", role = "read", condition = local.under["wheels"] }
    controller-reads-pools     = { account = "controller", role = "read", condition = "resource.name == \"${local.objects}/${local.pools}\"" }
    controller-keeps-bundles   = { account = "controller", role = "write", condition = local.under[local.bundles] }
    controller-reads-bundles   = { account = "controller", role = "read", condition = local.under[local.bundles] }
    controller-lists-bundles   = { account = "controller", role = "list", condition = local.lists[local.bundles] }
    controller-removes-files   = { account = "controller", role = "write", condition = local.under[local.jobs] }
    controller-reads-files     = { account = "controller", role = "read", condition = local.under[local.jobs] }
    controller-lists-files     = { account = "controller", role = "list", condition = local.lists[local.jobs] }
    job-keeps-files            = { account = "job", role = "write", condition = local.under[local.jobs] }
    job-reads-files            = { account = "job", role = "read", condition = local.under[local.jobs] }
    job-lists-files            = { account = "job", role = "list", condition = local.lists[local.jobs] }
    job-reads-bundles          = { account = "job", role = "read", condition = local.under[local.bundles] }
  }

  members = { for name, account in google_service_account.this : name => "serviceAccount:${account.email}" }
}

resource "google_service_account" "this" {
  for_each = local.accounts

  project      = var.project
  account_id   = "${local.name}-${each.key}"
  display_name = "Castor ${var.deployment}: ${each.key}"
  description  = each.value

  lifecycle {
    precondition {
      condition     = var.controller != null || length(var.controller_principals) > 0
      error_message = "controller, controller_principals: no controller could run: set an instance, or principals that may act as its account."
    }
  }

  depends_on = [google_project_service.this]
}

resource "google_project_iam_custom_role" "this" {
  for_each = local.roles

  project     = var.project
  role_id     = "castor_${var.deployment}_${each.key}"
  title       = "Castor ${var.deployment}: ${each.key}"
  permissions = each.value

  depends_on = [google_project_service.this]
}

resource "google_project_iam_member" "controller" {
  for_each = local.project_grants

  project = var.project
  role    = google_project_iam_custom_role.this[each.key].name
  member  = local.members["controller"]

  dynamic "condition" {
    for_each = compact([each.value])

    content {
      title      = "${local.name}-${each.key}"
      expression = condition.value
    }
  }
}

resource "google_compute_instance_template_iam_member" "controller" {
  for_each = google_compute_instance_template.pool

  project = var.project
  name    = each.value.name
  role    = google_project_iam_custom_role.this["template"].name
  member  = local.members["controller"]
}

# Owners of images in other projects must grant access themselves.
resource "google_compute_image_iam_member" "controller" {
  for_each = toset([for pool in var.pools : split("/", pool.image)[4] if split("/", pool.image)[1] == var.project])

  project = var.project
  image   = each.value
  role    = google_project_iam_custom_role.this["image"].name
  member  = local.members["controller"]
}

resource "google_compute_subnetwork_iam_member" "controller" {
  project    = local.network_project
  region     = var.region
  subnetwork = local.subnetwork
  # A role of this project can't be granted in another project, such as that of a shared network.
  role   = local.network_project == var.project ? google_project_iam_custom_role.this["subnetwork"].name : "roles/compute.networkUser"
  member = local.members["controller"]
}

resource "google_compute_subnetwork_iam_member" "other" {
  for_each = var.other_regions

  project    = local.network_project
  region     = each.key
  subnetwork = local.regions[each.key].subnetwork
  role       = google_compute_subnetwork_iam_member.controller.role
  member     = local.members["controller"]
}

resource "google_service_account_iam_member" "controller_acts_as_node" {
  service_account_id = google_service_account.this["node"].name
  role               = google_project_iam_custom_role.this["act"].name
  member             = local.members["controller"]
}

resource "google_service_account_iam_member" "controller_hands_on_leave" {
  service_account_id = google_service_account.this["job"].name
  role               = google_project_iam_custom_role.this["impersonate"].name
  member             = local.members["controller"]
}

resource "google_service_account_iam_member" "principals" {
  for_each = var.controller_principals

  service_account_id = google_service_account.this["controller"].name
  role               = google_project_iam_custom_role.this["impersonate"].name
  member             = each.value
}

resource "google_pubsub_subscription_iam_member" "controller" {
  project      = var.project
  subscription = google_pubsub_subscription.events.name
  role         = google_project_iam_custom_role.this["hear"].name
  member       = local.members["controller"]
}

resource "google_storage_bucket_iam_member" "this" {
  for_each = local.bucket_grants

  bucket = google_storage_bucket.this.name
  role   = google_project_iam_custom_role.this[each.value.role].name
  member = local.members[each.value.account]

  condition {
    title      = each.key
    expression = each.value.condition
  }
}
