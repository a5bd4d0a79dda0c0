# Mocks return random text, so attributes whose format the provider checks have values here.

mock_data "aws_caller_identity" {
  defaults = { account_id = "123456789012" }
}
mock_data "aws_partition" {
  defaults = { partition = "aws" }
}
mock_data "aws_region" {
  defaults = { id = "us-east-1" }
}
mock_data "aws_ami" {
  defaults = { root_device_name = "/dev/sda1" }
}
mock_resource "aws_vpc" {
  defaults = { id = "vpc-0123456789abcdef0" }
}
mock_data "aws_vpc" {
  defaults = { cidr_block = "10.90.0.0/16" }
}
mock_resource "aws_subnet" {
  defaults = { id = "subnet-0123456789abcdef0" }
}
mock_resource "aws_security_group" {
  defaults = { id = "sg-0123456789abcdef0" }
}
mock_resource "aws_vpc_endpoint" {
  defaults = { prefix_list_id = "pl-0123456789abcdef0" }
}
mock_data "aws_default_tags" {
  defaults = { tags = { "cost-centre" = "ml" } }
}
mock_resource "aws_launch_template" {
  defaults = {
    id             = "lt-0123456789abcdef0"
    arn            = "arn:aws:ec2:us-east-1:123456789012:launch-template/lt-0123456789abcdef0"
    latest_version = 3
  }
}
mock_resource "aws_placement_group" {
  defaults = { arn = "arn:aws:ec2:us-east-1:123456789012:placement-group/castor" }
}
mock_resource "aws_iam_role" {
  defaults = { id = "castor", arn = "arn:aws:iam::123456789012:role/castor" }
}
mock_resource "aws_iam_instance_profile" {
  defaults = { arn = "arn:aws:iam::123456789012:instance-profile/castor" }
}
mock_resource "aws_sqs_queue" {
  defaults = {
    arn = "arn:aws:sqs:us-east-1:123456789012:castor"
    url = "https://sqs.us-east-1.amazonaws.com/123456789012/castor"
  }
}
mock_resource "aws_cloudwatch_event_rule" {
  defaults = { arn = "arn:aws:events:us-east-1:123456789012:rule/castor" }
}
mock_resource "aws_sfn_state_machine" {
  defaults = { arn = "arn:aws:states:us-east-1:123456789012:stateMachine:castor-prod-sweep" }
}
mock_resource "aws_s3_bucket" {
  defaults = { arn = "arn:aws:s3:::castor" }
}
mock_resource "aws_kms_key" {
  defaults = { arn = "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000" }
}
