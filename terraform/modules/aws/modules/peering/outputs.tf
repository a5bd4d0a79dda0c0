output "connection_id" {
  description = "Peering connection, once both sides have accepted it."
  value       = aws_vpc_peering_connection_accepter.this.id
}
