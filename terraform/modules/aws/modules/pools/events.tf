locals {
  events = {
    reclaim = {
      source        = ["aws.ec2"]
      "detail-type" = ["EC2 Spot Instance Interruption Warning"]
    }
    rebalance = {
      source        = ["aws.ec2"]
      "detail-type" = ["EC2 Instance Rebalance Recommendation"]
    }
    state = {
      source        = ["aws.ec2"]
      "detail-type" = ["EC2 Instance State-change Notification"]
      detail        = { state = ["shutting-down", "stopping", "stopped", "terminated"] }
    }
    maintenance = {
      source        = ["aws.health"]
      "detail-type" = ["AWS Health Event"]
      detail        = { service = ["EC2"], eventTypeCategory = ["scheduledChange"] }
    }
  }
}

# A message stays until its instance has ended, which may be weeks after a maintenance notice. Hence
# SQS's maximum retention, and no redrive policy: Castor drops unreadable messages itself.
resource "aws_sqs_queue" "events" {
  name                      = "${local.name}-events"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true
  tags                      = local.tags
}

resource "aws_sqs_queue_policy" "events" {
  queue_url = aws_sqs_queue.events.url
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "EventsOfTheseRules"
        Effect    = "Allow"
        Principal = { Service = "events.amazonaws.com" }
        Action    = "sqs:SendMessage"
        Resource  = aws_sqs_queue.events.arn
        Condition = { ArnEquals = { "aws:SourceArn" = [for name in sort(keys(local.events)) : aws_cloudwatch_event_rule.this[name].arn] } }
      },
      {
        Sid       = "EncryptedConnectionsOnly"
        Effect    = "Deny"
        Principal = "*"
        Action    = "sqs:*"
        Resource  = aws_sqs_queue.events.arn
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
    ]
  })
}

resource "aws_cloudwatch_event_rule" "this" {
  for_each = local.events

  name          = "${local.name}-${each.key}"
  description   = "Castor ${var.shared.deployment}: ${each.key}"
  event_pattern = jsonencode(each.value)
  tags          = local.tags
}

resource "aws_cloudwatch_event_target" "this" {
  for_each = aws_cloudwatch_event_rule.this

  rule      = each.value.name
  target_id = "castor"
  arn       = aws_sqs_queue.events.arn
}
