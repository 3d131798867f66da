module github.com/quorumlock/redlock/internal/typecheck

go 1.25.0

require (
	github.com/stretchr/testify v1.12.1
	golang.org/x/tools v0.45.0
)

require (
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/mod v0.36.0 // indirect
	golang.org/x/sync v0.20.0 // indirect
)
