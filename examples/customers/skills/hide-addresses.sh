# Runs the rest of the chain and changes its result on the way out. A throw is passed on as it was.
cat >/dev/null
result=$(etude host next 2>/dev/null) || exit 1
printf '{"result": %s}' "$result" | sed 's/[A-Za-z0-9._%+-]*@[A-Za-z0-9.-]*[A-Za-z0-9]/(address)/g'
