//go:build pin

// Package pin makes `go mod tidy` keep what is built here.
package pin

import _ "helm.sh/helm/v3/cmd/helm"
