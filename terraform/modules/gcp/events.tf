# Events of instances that Compute Engine causes and writes to the project's audit log.
locals {
  events = ["preempted", "terminateOnHostMaintenance", "hostError", "guestTerminate"]
  events_filter = join(" AND ", [
    "log_id(\"cloudaudit.googleapis.com/system_event\")",
    "resource.type=\"gce_instance\"",
    "protoPayload.methodName=(${join(" OR ", [for event in local.events : "\"compute.instances.${event}\""])})",
    "protoPayload.resourceName:\"/instances/${local.prefix}\"",
  ])
}

resource "google_pubsub_topic" "events" {
  project      = var.project
  name         = "${local.name}-events"
  kms_key_name = var.kms_key
  labels       = local.labels

  message_storage_policy {
    allowed_persistence_regions = [var.region]
  }

  depends_on = [google_project_service.this]
}

resource "google_pubsub_subscription" "events" {
  project                    = var.project
  name                       = "${local.name}-events"
  topic                      = google_pubsub_topic.events.id
  ack_deadline_seconds       = 20
  message_retention_duration = "604800s"
  labels                     = local.labels

  # The subscription never expires, however long no controller runs.
  expiration_policy {
    ttl = ""
  }
}

resource "google_logging_project_sink" "events" {
  project                = var.project
  name                   = "${local.name}-events"
  description            = "Castor ${var.deployment}: what happens to its instances"
  destination            = "pubsub.googleapis.com/${google_pubsub_topic.events.id}"
  filter                 = local.events_filter
  unique_writer_identity = true
}

resource "google_pubsub_topic_iam_member" "sink" {
  project = var.project
  topic   = google_pubsub_topic.events.name
  role    = "roles/pubsub.publisher"
  member  = google_logging_project_sink.events.writer_identity
}
