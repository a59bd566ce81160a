echo '{"output": {}}'
