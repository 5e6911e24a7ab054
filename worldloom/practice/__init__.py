"""What agents gain from a world model: look before acting, plan, rehearse, practise."""
