# End of left-over instances of the region without a controller, which may be lost for ever: those
# that stopped, and those that have run longer than `max_run_hours` because their agent hangs too.

resource "aws_sfn_state_machine" "sweep" {
  count = var.shared.sweep == null ? 0 : 1

  name     = "${local.name}-sweep"
  role_arn = var.shared.sweep.role_arn
  # An execution may have 25,000 events: it reads 10,000 instances and more.
  definition = replace(file("${path.module}/../../files/sweep.asl.json"), "arn:aws:", "arn:${var.shared.partition}:")
  tags       = local.tags
}

resource "aws_scheduler_schedule" "sweep" {
  count = var.shared.sweep == null ? 0 : 1

  name                = "${local.name}-sweep"
  description         = "Castor ${var.shared.deployment}: ends left-over instances"
  schedule_expression = var.shared.sweep.schedule

  flexible_time_window {
    mode                      = "FLEXIBLE"
    maximum_window_in_minutes = 15
  }

  target {
    arn      = aws_sfn_state_machine.sweep[0].arn
    role_arn = var.shared.sweep.role_arn
    input    = jsonencode({ deployment = var.shared.deployment, max_run_hours = var.shared.sweep.max_run_hours })
  }
}
