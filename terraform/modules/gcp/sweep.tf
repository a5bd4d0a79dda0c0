# Deletion of stopped instances by the deployment's label, without a controller. Compute Engine stops
# an instance that shuts itself down, and then no longer deletes it after `max_run_hours`.
locals {
  sweeps = var.sweep_schedule == null ? {} : { this = var.sweep_schedule }

  # Grants of the sweep's account in the project: role and condition.
  sweep_grants = var.sweep_schedule == null ? {} : {
    sweep_look   = null
    sweep_delete = local.launch_conditions[1]
    sweep_start  = null
  }
}

resource "google_workflows_workflow" "sweep" {
  for_each = local.sweeps

  project             = var.project
  region              = var.region
  name                = "${local.name}-sweep"
  description         = "Castor ${var.deployment}: deletes stopped instances"
  service_account     = google_service_account.this["sweep"].email
  source_contents     = file("${path.module}/files/sweep.json")
  call_log_level      = "LOG_ERRORS_ONLY"
  deletion_protection = false
  labels              = local.host_labels

  depends_on = [google_project_service.this]
}

resource "google_cloud_scheduler_job" "sweep" {
  for_each = local.sweeps

  project     = var.project
  region      = var.region
  name        = "${local.name}-sweep"
  description = "Castor ${var.deployment}: starts the deletion of stopped instances"
  schedule    = each.value
  time_zone   = "Etc/UTC"

  http_target {
    http_method = "POST"
    uri         = "https://workflowexecutions.googleapis.com/v1/${google_workflows_workflow.sweep[each.key].id}/executions"
    headers     = { "Content-Type" = "application/json" }
    body = base64encode(jsonencode({
      argument = jsonencode({ project = var.project, deployment = var.deployment })
    }))

    oauth_token {
      service_account_email = google_service_account.this["sweep"].email
    }
  }

  depends_on = [google_project_iam_member.sweep]
}

resource "google_project_iam_member" "sweep" {
  for_each = local.sweep_grants

  project = var.project
  role    = google_project_iam_custom_role.this[each.key].name
  member  = local.members["sweep"]

  dynamic "condition" {
    for_each = compact([each.value])

    content {
      title      = "${local.name}-${replace(each.key, "_", "-")}"
      expression = condition.value
    }
  }
}
