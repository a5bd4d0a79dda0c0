# Pools of the module's own region; modules/pools makes those of others.
module "pools" {
  source = "./modules/pools"

  shared  = local.shared
  network = module.network.network
  pools   = var.pools

  volume_usd_per_gb_month       = var.volume_usd_per_gb_month
  volume_usd_per_iops_month     = var.volume_usd_per_iops_month
  volume_usd_per_mibps_month    = var.volume_usd_per_mibps_month
  address_usd_per_hour          = var.address_usd_per_hour
  volume_kms_key_arn            = var.volume_kms_key_arn
  identity_certificate          = var.identity_certificate
  additional_security_group_ids = var.additional_security_group_ids
}
