{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "penstock.image" -}}
{{- $image := .Values.image -}}
{{- $repository := required "image.repository: name the image that has the application" $image.repository -}}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ required "image.tag: name a tag, or a digest" $image.tag }}
{{- end -}}
{{- end }}

{{- /* Whether the admin server can be reached from other pods: not empty. */ -}}
{{- define "penstock.open" -}}
{{- if and .Values.admin.secret .Values.admin.tlsSecret -}}
open
{{- else if or .Values.admin.secret .Values.admin.tlsSecret -}}
{{- fail "admin: set both secret and tlsSecret, or none: other pods are served over TLS and with a token only" -}}
{{- end -}}
{{- end }}
