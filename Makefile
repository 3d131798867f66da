.PHONY: demo test

demo:
	go run ./cmd/redlock demo

test:
	command -v redis-server >/dev/null || (apt-get update -q && apt-get install -qy redis-server) || true
	go vet ./...
	go test -race -count=1 -timeout 8m ./...
