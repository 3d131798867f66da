// Package dbserver starts database servers for tests, on Linux. They have no port, and end with the test.
package dbserver
