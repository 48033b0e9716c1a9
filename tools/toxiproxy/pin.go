//go:build pin

// Package pin makes `go mod tidy` keep what the server is built from.
package pin

import _ "github.com/Shopify/toxiproxy/v2/cmd/server"
